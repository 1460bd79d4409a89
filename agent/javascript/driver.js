// SPDX-License-Identifier: Apache-2.0
/*
 * The interpreter of JavaScript and TypeScript: node's own REPL without its terminal, driven by the agent with the messages
 * that agent/python/driver.py describes. TypeScript is what the compiler in the template makes JavaScript of.
 *
 * A SIGINT stops code that computes (the REPL's breakEvalOnSigint) and code that awaits. What is random
 * comes from the kernel, whose generator a clone's host seeds anew: not from node's own, which a clone would share
 * with its siblings.
 */
"use strict";

const CONTROL = 3, RESULTS = 4;
const NAME_MAX = 256, VALUE_MAX = 16 << 10, TRACE_MAX = 128 << 10;
const DISPLAY_MAX = 8 << 20, CELL_MAX = 32 << 20;

const crypto = require("crypto");
const fs = require("fs");
const net = require("net");
const repl = require("repl");
const stream = require("stream");
const util = require("util");

const typescript = process.argv[1] === "typescript";
let compiler = null;
let received = Buffer.alloc(0);
let socket;
let cellBytes = 0, count = 0, sandboxEnv = "";

// ---- messages

function send(kind, body = Buffer.alloc(0)) {
	const head = Buffer.alloc(5);

	head.writeUInt32LE(body.length, 0);
	head.write(kind, 4, "latin1");
	socket.write(Buffer.concat([head, body]));
}

function clip(text, limit) {
	const bytes = Buffer.from(String(text).toWellFormed ? String(text).toWellFormed() : String(text));
	const clean = Buffer.from(bytes.toString().replace(/\0/g, "\\x00"));

	if (clean.length <= limit)
		return clean;
	const half = (limit >> 1) - 32;
	const note = `\n… ${clean.length - 2 * half} bytes cut …\n`;
	const part = (from, to) => clean.subarray(from, to).toString().replace(/^\ufffd+|\ufffd+$/g, "");
	return Buffer.from(part(0, half) + note + part(clean.length - half));
}

function packed(text, limit) {
	const bytes = clip(text, limit), length = Buffer.alloc(4);

	length.writeUInt32LE(bytes.length, 0);
	return Buffer.concat([length, bytes]);
}

function unpacked(body) {
	let at = 0;
	const number = () => body.readUInt32LE((at += 4) - 4);
	const string = () => {
		const length = number();
		return body.subarray(at, (at += length)).toString();
	};
	const list = () => Array.from({length: number()}, string);
	return {code: string(), sandbox: list(), own: list()};
}

/* The first whole message that has come, or null. */
function next() {
	if (received.length < 5)
		return null;
	const length = received.readUInt32LE(0);
	if (received.length < 5 + length)
		return null;
	const message = {kind: String.fromCharCode(received[4]), body: received.subarray(5, 5 + length)};
	received = received.subarray(5 + length);
	return message;
}

/* Has the interrupt of the cell that is about to begin come already? Then its signal has gone by. */
function interruptWaits() {
	const more = Buffer.alloc(64);

	try {
		received = Buffer.concat([received, more.subarray(0, fs.readSync(CONTROL, more, 0, 64))]);
	} catch (error) {
		if (error.code !== "EAGAIN")
			throw error;
	}
	for (let at = 4; at < received.length; at += 5)
		if (received[at] === 0x49)
			return true;
	return false;
}

// ---- results

function emit(type, bundle) {
	const data = {};

	for (const [mime, value] of Object.entries(bundle)) {
		const text = typeof value === "string" ? value
			: value instanceof Uint8Array ? Buffer.from(value).toString("base64")
			: JSON.stringify(value);
		data[mime] = String(text).replace(/[\0]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");
	}
	let line = Buffer.from(JSON.stringify({type, data}) + "\n");
	if (line.length > DISPLAY_MAX || cellBytes + line.length > CELL_MAX) {
		const note = `${(data["text/plain"] || "").slice(0, 1000)}\n… a result of ${line.length} bytes, not passed on: too long`;
		line = Buffer.from(JSON.stringify({type, data: {"text/plain": note}}) + "\n");
		if (cellBytes + line.length > CELL_MAX + (1 << 20))
			return;
	}
	cellBytes += line.length;
	for (let at = 0; at < line.length;)
		at += fs.writeSync(RESULTS, line, at);
}

/* What a value has to show: its text, and what it says for itself as Deno's notebooks ask it. */
function bundleOf(value) {
	const own = value !== null && typeof value === "object" && value[Symbol.for("Jupyter.display")];

	return {"text/plain": util.inspect(value), ...(typeof own === "function" ? own.call(value) : {})};
}

global.display = (value, options = {}) => emit("display", options.raw ? value : bundleOf(value));

// ---- randomness

function seedNumbers() {
	let state = fromKernel(16), a = state.readBigUInt64LE(0) | 1n, b = state.readBigUInt64LE(8);
	const mask = (1n << 64n) - 1n;

	Math.random = () => {
		let x = a, y = b;
		a = y;
		x ^= (x << 23n) & mask;
		b = x ^ y ^ (x >> 17n) ^ (y >> 26n);
		return Number(((b + y) & mask) >> 11n) / 2 ** 53;
	};
}

function fromKernel(length) {
	const bytes = Buffer.alloc(length), fd = fs.openSync("/dev/urandom", "r");

	try {
		for (let at = 0; at < length;)
			at += fs.readSync(fd, bytes, at, length - at);
	} finally {
		fs.closeSync(fd);
	}
	return bytes;
}

function fill(buffer, offset = 0, size) {
	const view = buffer instanceof ArrayBuffer ? new Uint8Array(buffer)
		: new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength);
	const unit = buffer.BYTES_PER_ELEMENT || 1, from = offset * unit;
	const length = size === undefined ? view.length - from : size * unit;

	view.set(fromKernel(length), from);
	return buffer;
}

function later(make) {
	return (...args) => {
		const then = typeof args[args.length - 1] === "function" ? args.pop() : null;
		const value = make(...args);

		if (!then)
			return value;
		setImmediate(then, null, value);
	};
}

function uuid() {
	const b = fromKernel(16);

	b[6] = (b[6] & 15) | 64;
	b[8] = (b[8] & 63) | 128;
	return b.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

function integer(low, high) {
	if (high === undefined)
		[low, high] = [0, low];
	const range = BigInt(high - low), limit = (1n << 64n) - (1n << 64n) % range;
	let value;

	do {
		value = fromKernel(8).readBigUInt64LE(0);
	} while (value >= limit);
	return low + Number(value % range);
}

for (const [owner, name, value] of [
	[crypto, "randomBytes", later(fromKernel)],
	[crypto, "randomFill", later(fill)],
	[crypto, "randomFillSync", fill],
	[crypto, "randomInt", later(integer)],
	[crypto, "randomUUID", uuid],
	[crypto.webcrypto, "getRandomValues", (array) => fill(array)],
	[crypto.webcrypto, "randomUUID", uuid],
])
	Object.defineProperty(owner, name, {value, writable: true, configurable: true, enumerable: true});
seedNumbers();

// ---- a cell

/* Static imports have no place in a script: they become what they mean. */
function withImports(code) {
	return code.replace(
		/(^|;)[ \t]*import\s+(?:([\w$]+)\s*,?\s*)?(?:\*\s*as\s+([\w$]+)\s*|\{([^}]*)\}\s*)?(?:from\s*)?(["'])([^"'\n]+)\5[ \t]*;?/gm,
		(_all, before, main, space, names, quote, from) => {
			const load = `await import(${quote}${from}${quote})`, parts = [];

			if (main)
				parts.push(`var ${main} = (${load}).default`);
			if (space)
				parts.push(`var ${space} = ${load}`);
			if (names)
				parts.push(`var {${names.replace(/\bas\b/g, ":")}} = ${load}`);
			return `${before} ${parts.length ? parts.join("; ") : load};`;
		});
}

function compiled(code) {
	if (!typescript)
		return withImports(code);
	const options = {target: compiler.ScriptTarget.ES2022, module: compiler.ModuleKind.ESNext,
		isolatedModules: true};
	// an import that nothing uses yet is for a later cell
	options[parseInt(compiler.versionMajorMinor) >= 5 ? "verbatimModuleSyntax" : "preserveValueImports"] = true;
	const made = compiler.transpileModule(code, {compilerOptions: options, reportDiagnostics: true});

	if (made.diagnostics.length) {
		const one = made.diagnostics[0];
		throw new SyntaxError(compiler.flattenDiagnosticMessageText(one.messageText, "\n"));
	}
	return withImports(made.outputText.replace(/^export \{\};?\s*$/m, "").replace(/^"use strict";\s*/, ""));
}

function described(error) {
	if (error instanceof repl.Recoverable)
		error = error.err;
	if (error && (error.code === "ERR_SCRIPT_EXECUTION_INTERRUPTED"))
		return ["KeyboardInterrupt", "", "KeyboardInterrupt"];
	if (!(error instanceof Error) && !(error && typeof error.stack === "string"))
		return ["Error", util.inspect(error), `Uncaught ${util.inspect(error)}`];
	const lines = String(error.stack).split("\n");
	const ours = lines.findIndex((line) => /^\s+at .*(node:internal|node:repl|node:vm|node:domain|\[eval\])/.test(line));
	return [error.name || "Error", error.message || "", (ours > 0 ? lines.slice(0, ours) : lines).join("\n")];
}

function setEnv(pairs) {
	const before = {};

	for (const pair of pairs) {
		const at = pair.indexOf("=");
		if (at < 1)
			continue;
		const name = pair.slice(0, at);
		before[name] = process.env[name];
		process.env[name] = pair.slice(at + 1);
	}
	return before;
}

/* What the REPL's domain catches is of the cell that runs, or of what an earlier one left behind. */
let failed = null;

function uncaught(error) {
	if (failed)
		failed({raised: described(error)});
	else
		process.stderr.write(`Uncaught ${described(error)[2]}\n`);
}

function evaluate(server, code) {
	return new Promise((resolve) => {
		failed = resolve;
		try {
			const script = compiled(code) + "\n";

			// while code computes, the watchdog of node's VM has the signal: it takes no listener beside it
			process.removeAllListeners("SIGINT");
			server.eval(script, server.context, `cell ${count}`,
				(error, value) => resolve(error ? {raised: described(error)} : {value}));
		} catch (error) {
			resolve({raised: described(error)});
		} finally {
			process.removeAllListeners("SIGINT");
			process.on("SIGINT", () => server.emit("SIGINT"));
		}
	});
}

async function cell(server, body) {
	const {code, sandbox, own} = unpacked(body);
	let end;

	count++;
	cellBytes = 0;
	if (sandbox.length && sandbox.join("\0") !== sandboxEnv) {
		sandboxEnv = sandbox.join("\0");
		setEnv(sandbox);
	}
	const before = setEnv(own);
	end = interruptWaits() ? {raised: ["KeyboardInterrupt", "", "KeyboardInterrupt"]} : await evaluate(server, code);
	failed = null;
	for (const [name, value] of Object.entries(before)) {
		if (value === undefined)
			delete process.env[name];
		else
			process.env[name] = value;
	}
	if (!end.raised && end.value !== undefined) {
		try {
			emit("result", bundleOf(end.value));
			server.last = end.value;
		} catch (error) {
			end.raised = described(error);
		}
	}
	const [name, value, trace] = end.raised || ["", "", ""], head = Buffer.alloc(5);
	head.writeUInt32LE(count, 0);
	head[4] = end.raised ? 1 : 0;
	send("D", Buffer.concat([head, packed(name, NAME_MAX), packed(value, VALUE_MAX), packed(trace, TRACE_MAX)]));
}

// ---- the interpreter

async function serve(server) {
	for (let message; (message = next());) {
		if (message.kind === "C")
			await cell(server, message.body);
		else if (message.kind === "S")
			seedNumbers();
		else if (message.kind === "P")
			count = 0;
		if ("SGEP".includes(message.kind))
			send(message.kind);
	}
}

function start() {
	if (typescript)
		compiler = require("typescript");
	// what the REPL says is of code that failed behind its cell
	const says = new stream.Writable({write(text, _encoding, done) {
		process.stderr.write(text);
		done();
	}});
	const server = repl.start({input: new stream.PassThrough(), output: says, prompt: "", terminal: false,
		useGlobal: true, breakEvalOnSigint: true, useColors: false});
	let serving = false;

	server._domain.removeAllListeners("error");
	server._domain.on("error", uncaught);

	process.exit = (status) => {
		throw new Error(`process.exit(${status ?? ""}) does not end this interpreter: stop or restart its context`);
	};
	process.on("SIGINT", () => {}); // between cells
	process.on("unhandledRejection", (error) => process.stderr.write(`Uncaught (in promise) ${util.inspect(error)}\n`));
	socket.on("data", async (bytes) => {
		received = Buffer.concat([received, bytes]);
		if (serving)
			return;
		serving = true;
		await serve(server);
		serving = false;
	});
	socket.on("end", () => process.kill(process.pid, "SIGKILL"));
	send("H");
}

socket = new net.Socket({fd: CONTROL, readable: true, writable: true});
try {
	start();
} catch (error) {
	send("F", Buffer.from(typescript ? "cannot load the TypeScript compiler, which the context needs" : String(error)));
	socket.end(() => process.kill(process.pid, "SIGKILL"));
}
