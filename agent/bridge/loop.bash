# SPDX-License-Identifier: Apache-2.0
# The cells of a Bash context: agent/bridge/driver.py says how they come. A cell is sourced, so it is at the top level, and an interrupt
# returns from it.
trap : INT
__parbake_fields() { printf '%s\0' "$@" >&8; }
__parbake_fields ready

while IFS= read -r -d '' -u 7 __parbake_n; do
	__parbake_names=() __parbake_old=()
	for ((__parbake_i = 0; __parbake_i < ${__parbake_n#-}; __parbake_i++)); do
		IFS= read -r -d '' -u 7 __parbake_pair
		__parbake_name=${__parbake_pair%%=*}
		# what is no name of the shell's cannot be a variable of it
		[[ $__parbake_name =~ ^[A-Za-z_][A-Za-z0-9_]*$ ]] || continue
		__parbake_names+=("$__parbake_name")
		__parbake_old+=("${!__parbake_name+x${!__parbake_name}}")
		export "$__parbake_name=${__parbake_pair#*=}"
	done
	IFS= read -r -d '' -u 7 __parbake_code
	if [[ $__parbake_n == -* ]]; then # the sandbox's variables, which stay
		__parbake_fields ok '' ''
		continue
	fi
	trap 'return 130' INT
	source /dev/fd/9 9<<<"$__parbake_code" 7<&- 8>&- </dev/null
	__parbake_status=$?
	trap : INT
	for __parbake_i in "${!__parbake_names[@]}"; do
		__parbake_name=${__parbake_names[__parbake_i]}
		if [[ -n ${__parbake_old[__parbake_i]} ]]; then
			export "$__parbake_name=${__parbake_old[__parbake_i]#x}"
		else
			unset "$__parbake_name"
		fi
	done
	if ((__parbake_status == 0)); then
		__parbake_fields ok '' ''
	elif ((__parbake_status == 130)); then
		__parbake_fields KeyboardInterrupt '' KeyboardInterrupt
	else
		__parbake_fields ExitStatus "$__parbake_status" "the last command's exit status is $__parbake_status"
	fi
done
