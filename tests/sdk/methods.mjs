// SPDX-License-Identifier: Apache-2.0
// Every method of E2B's JavaScript package against a pool. TAP.
import { Sandbox, CommandExitError, NotFoundError, TimeoutError } from 'e2b'

let n = 0
let bad = 0

function ok(good, name, ...details) {
  n += 1
  bad += good ? 0 : 1
  console.log(`${good ? 'ok' : 'not ok'} ${n} - js: ${name}`)
  if (!good) for (const d of details) console.log('# ' + String(d?.stack ?? JSON.stringify(d)).replaceAll('\n', '\n# ').slice(0, 2000))
}

async function check(name, fn, want = () => true) {
  try {
    const value = await fn()
    ok(typeof want === 'function' ? want(value) : value === want, name, value)
    return value
  } catch (e) {
    ok(false, name, e)
  }
}

async function raises(name, kind, fn) {
  try {
    ok(false, name, await fn())
  } catch (e) {
    ok(e instanceof kind, name, e)
  }
}

const s = await check('Sandbox.create', () => Sandbox.create('base', { timeoutMs: 300_000, metadata: { by: 'js' }, envs: { MINE: 'yes' } }))
if (s) {
  await check('isRunning', () => s.isRunning(), true)
  await check('getInfo', () => s.getInfo(), (i) => i.sandboxId === s.sandboxId && i.metadata.by === 'js')
  await check('setTimeout', () => s.setTimeout(600_000))
  await check('getMetrics', () => s.getMetrics(), (m) => m.length > 0 && m[0].memTotal > 0)
  await check('Sandbox.connect', () => Sandbox.connect(s.sandboxId), (o) => o.sandboxId === s.sandboxId)
  await check('Sandbox.list', () => Sandbox.list({ query: { metadata: { by: 'js' } } }).nextItems(), (l) => l.some((i) => i.sandboxId === s.sandboxId))
  ok(s.getHost(3000) === `3000-${s.sandboxId}.boxes.example.org`, 'getHost', s.getHost(3000))

  await check('commands.run', () => s.commands.run('echo out; echo err >&2; echo $MINE'), (r) => r.stdout === 'out\nyes\n' && r.stderr === 'err\n')
  await raises('commands.run that fails', CommandExitError, () => s.commands.run('exit 3'))
  await raises('commands.run that takes too long', TimeoutError, () => s.commands.run('sleep 60', { timeoutMs: 1000 }))
  let heard = ''
  await check('commands.run, told as it comes', () => s.commands.run('echo a; echo b', { onStdout: (t) => { heard += t } }), () => heard === 'a\nb\n')
  const h = await check('commands.run in the background', () => s.commands.run('cat', { background: true, stdin: true }))
  await check('commands.list', () => s.commands.list(), (l) => l.some((p) => p.pid === h.pid))
  await check('commands.sendStdin', () => s.commands.sendStdin(h.pid, 'hello\n'))
  const other = await check('commands.connect', () => s.commands.connect(h.pid), (c) => c.pid === h.pid)
  await check('CommandHandle.disconnect', () => other.disconnect())
  const cat = await check('another command with input', () => s.commands.run('cat', { background: true, stdin: true }))
  if (s.commands.closeStdin) {
    await check('commands.sendStdin, again', () => s.commands.sendStdin(cat.pid, 'hello'))
    await check('commands.closeStdin', () => s.commands.closeStdin(cat.pid))
    await check('CommandHandle.wait', () => cat.wait(), (r) => r.stdout === 'hello')
  }
  const slept = await check('a command to be killed', () => s.commands.run('sleep 600', { background: true }))
  await check('CommandHandle.kill', () => slept.kill(), true)
  await check('commands.kill', () => s.commands.kill(h.pid), true)
  await raises('its end', CommandExitError, () => h.wait())
  await check('commands.kill of none', () => s.commands.kill(999999), false)

  await check("commands run as the template's user", () => s.commands.run('id -un; pwd; sudo -n id -u'), (r) => r.stdout === 'user\n/home/user\n0\n' && r.stderr === '')
  await check('a relative path is below the home', () => s.files.write('mine/a', 'a'), (i) => i.path === '/home/user/mine/a')
  await check("files are the user's", () => s.files.getInfo('mine'), (i) => i.owner === 'user' && i.group === 'user')

  const events = []
  const watch = await check('files.watchDir', () => s.files.watchDir('mine', (e) => { events.push(`${e.type} ${e.name}`) }, { recursive: true, timeoutMs: 0 }))
  await s.files.write('mine/below/b', 'b')
  const until = Date.now() + 60_000
  while (!events.includes('write below/b') && !events.includes('create below/b') && Date.now() < until) await new Promise((r) => setTimeout(r, 100))
  ok(events.includes('create below') && events.includes('create below/b'), 'tells what happens in it', events.join())
  await check('its stop', () => watch.stop())
  await raises('files.watchDir of none', NotFoundError, () => s.files.watchDir('/tmp/none', () => {}))

  let seen = ''
  const pty = await check('pty.create', () => s.pty.create({ rows: 24, cols: 80, onData: (b) => { seen += Buffer.from(b).toString() } }))
  await check('pty.resize', () => s.pty.resize(pty.pid, { rows: 30, cols: 100 }))
  await check('pty.sendInput', () => s.pty.sendInput(pty.pid, new TextEncoder().encode('stty size; exit 0\n')))
  await check('its end', () => pty.wait(), (r) => r.exitCode === 0)
  ok(seen.includes('30 100'), 'its size', seen)

  const left = await check('another pty', () => s.pty.create({ rows: 24, cols: 80, onData: () => {} }))
  seen = ''
  const again = await check('pty.connect', () => s.pty.connect(left.pid, { onData: (b) => { seen += Buffer.from(b).toString() } }))
  await check('input to it', () => s.pty.sendInput(left.pid, new TextEncoder().encode('echo $((6*7)); exit 0\n')))
  await check('the end of what was connected to', () => again.wait(), (r) => r.exitCode === 0)
  ok(seen.includes('42'), 'its output', seen)
  const killed = await check('a pty to be killed', () => s.pty.create({ rows: 24, cols: 80, onData: () => {} }))
  await check('pty.kill', () => s.pty.kill(killed.pid), true)

  const f = s.files
  await check('files.makeDir', () => f.makeDir('/tmp/d/e'), true)
  await check('files.write', () => f.write('/tmp/d/a.txt', 'text'), (i) => i.path === '/tmp/d/a.txt')
  await check('files.write of several', () => f.write([{ path: '/tmp/d/b', data: 'b' }, { path: '/tmp/d/c', data: 'c' }]), (r) => r.length === 2)
  await check('files.read', () => f.read('/tmp/d/a.txt'), 'text')
  await check('files.read of bytes', () => f.read('/tmp/d/b', { format: 'bytes' }), (b) => Buffer.from(b).toString() === 'b')
  await check('files.read of a blob', async () => (await f.read('/tmp/d/b', { format: 'blob' })).text(), 'b')
  await check('files.read of a stream', async () => new Response(await f.read('/tmp/d/b', { format: 'stream' })).text(), 'b')
  await check('files.exists', () => f.exists('/tmp/d/a.txt'), true)
  await check('files.exists of none', () => f.exists('/tmp/d/none'), false)
  await check('files.getInfo', () => f.getInfo('/tmp/d/a.txt'), (i) => i.size === 4)
  await check('files.list', () => f.list('/tmp/d'), (l) => l.map((i) => i.name).sort().join() === 'a.txt,b,c,e')
  await check('files.rename', () => f.rename('/tmp/d/c', '/tmp/d/moved'), (i) => i.path === '/tmp/d/moved')
  await check('files.remove', () => f.remove('/tmp/d/moved'))
  await raises('files.read of none', NotFoundError, () => f.read('/tmp/d/none'))

  await f.write('/dev/shm/mark', 'kept')
  const snapshot = await check('createSnapshot', () => s.createSnapshot(), (i) => !!i.snapshotId)
  const made = await check('Sandbox.create of a snapshot', () => Sandbox.create(snapshot.snapshotId))
  await check('has what it had', () => made.files.read('/dev/shm/mark'), 'kept')
  await made?.kill()
  await check('Sandbox.listSnapshots', () => Sandbox.listSnapshots({ sandboxId: s.sandboxId }).nextItems(), (l) => l.some((i) => i.snapshotId === snapshot.snapshotId))
  await check('Sandbox.getInfo', () => Sandbox.getInfo(s.sandboxId), (i) => i.sandboxId === s.sandboxId)
  await check('Sandbox.setTimeout', () => Sandbox.setTimeout(s.sandboxId, 900_000))
  await check('Sandbox.deleteSnapshot', () => Sandbox.deleteSnapshot(snapshot.snapshotId), true)
  await check('pause', () => s.pause())
  await check('isRunning of a paused one', () => s.isRunning(), false)
  await check('connect', () => s.connect(), (again) => again.sandboxId === s.sandboxId)
  await check('it is as it was', () => f.read('/dev/shm/mark'), 'kept')
  await check('kill', () => s.kill())
  await check('kill of none', () => Sandbox.kill(s.sandboxId), false)
  await check('isRunning of none', () => s.isRunning(), false)
}
console.log(`1..${n}`)
process.exit(bad > 0 ? 1 : 0)
