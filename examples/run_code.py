# SPDX-License-Identifier: Apache-2.0
# The least there is: one cell of code in a sandbox.
from e2b_code_interpreter import Sandbox

box = Sandbox.create(timeout=60)
try:
    print(box.run_code("x = 6 * 7; x").text)
finally:
    box.kill()
