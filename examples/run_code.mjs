// SPDX-License-Identifier: Apache-2.0
// The least there is, in JavaScript: one cell of code in a sandbox.
import { Sandbox } from '@e2b/code-interpreter'

const box = await Sandbox.create({ timeoutMs: 60_000 })
try {
  console.log((await box.runCode('x = 6 * 7; x')).text)
} finally {
  await box.kill()
}
