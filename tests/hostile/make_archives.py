# SPDX-License-Identifier: Apache-2.0
"""Make the archives of archives.txt: make_archives.py DIRECTORY VICTIM

Each function makes one archive, named like it, in DIRECTORY. VICTIM is a directory of the host that
hostile ones aim at. faithful.tar and its compressed copies are what a good archive may hold."""
import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import tarfile
import zlib

out, victim = sys.argv[1], sys.argv[2]
MIB = 1 << 20


def header(name, size=0, kind=b"0", link=b"", mode=0o644, uid=0, size_field=None, prefix=b"",
           major=0, minor=0):
    """A ustar header from bytes, with whatever is asked for."""
    def octal(n, width):
        return b"%0*o\0" % (width - 1, n)

    def number(n, width):
        if 0 <= n < 8 ** (width - 1):
            return octal(n, width)
        return (n & ((1 << (8 * width - 1)) - 1) | 1 << (8 * width - 1)).to_bytes(width, "big")

    h = name.ljust(100, b"\0") + octal(mode, 8) + number(uid, 8) + octal(0, 8)
    h += size_field or number(size, 12)
    h += octal(1700000000, 12) + b" " * 8 + kind + link.ljust(100, b"\0") + b"ustar\00000"
    h += b"\0" * 64 + number(major, 8) + number(minor, 8) + prefix.ljust(155, b"\0")
    h = h.ljust(512, b"\0")
    return h[:148] + b"%06o\0 " % sum(h) + h[156:]


def padded(data):
    return data + b"\0" * (-len(data) % 512)


def entry(name, data=b"", **kw):
    return header(name, len(data), **kw) + padded(data)


def pax(records):
    body = b""
    for key, value in records:
        line = b" " + key + b"=" + value + b"\n"
        n = len(line)
        while len(str(n).encode() + line) != n:
            n = len(str(n).encode() + line)
        body += str(n).encode() + line
    return entry(b"pax", body, kind=b"x")


END = b"\0" * 1024
HELLO = entry(b"hello", b"hello\n")
V = os.fsencode(victim)

archives = {
    # names
    "dotdot": HELLO + entry(b"../evil", b"x"),
    "dotdot-middle": entry(b"a/b/../../../../evil", b"x"),
    "dotdot-end": entry(b"a/..", kind=b"5"),
    "dotdot-prefix": entry(b"evil", b"x", prefix=b"../.."),
    "dotdot-pax": pax([(b"path", b"../../evil")]) + entry(b"fine", b"x"),
    "absolute": entry(b"/" + V[1:50] + b"/evil", b"x"),
    "absolute-many": entry(b"//etc//./passwd", b"x"),
    "name-empty": entry(b"", b"x"),
    "name-long": pax([(b"path", b"n" * 300)]) + entry(b"n", b"x"),
    "path-long": pax([(b"path", (b"d" * 250 + b"/") * 20 + b"n")]) + entry(b"n", b"x"),
    "path-deep": pax([(b"path", b"d/" * 200 + b"n")]) + entry(b"n", b"x"),
    "name-gnu-long": entry(b"././@LongLink", b"n" * 70000 + b"\0", kind=b"L") + entry(b"n", b"x"),
    # links
    "hardlink-dotdot": HELLO + entry(b"h", kind=b"1", link=b"../../etc/passwd"),
    "hardlink-absolute": HELLO + entry(b"h", kind=b"1", link=b"/etc/passwd"),
    "hardlink-later": entry(b"early", kind=b"1", link=b"late") + entry(b"late", b"x"),
    "hardlink-dir": entry(b"d/", kind=b"5") + entry(b"h", kind=b"1", link=b"d"),
    "hardlink-self": HELLO + entry(b"hello", kind=b"1", link=b"./hello"),
    "hardlink-through": entry(b"s", kind=b"2", link=b"/etc") + entry(b"h", kind=b"1", link=b"s/passwd"),
    "symlink-through": entry(b"s", kind=b"2", link=V) + entry(b"s/evil", b"x"),
    "symlink-through-hard": entry(b"s", kind=b"2", link=V) + entry(b"h", kind=b"1", link=b"s")
    + entry(b"h/evil", b"x"),
    "symlink-replaces-dir": entry(b"d/", kind=b"5") + entry(b"d", kind=b"2", link=V)
    + entry(b"d/evil", b"x"),
    "symlink-replaced": entry(b"s", kind=b"2", link=V + b"/evil") + entry(b"s", b"x"),
    "symlink-outside": entry(b"s", kind=b"2", link=b"../../../../etc/passwd"),
    "symlink-empty": entry(b"s", kind=b"2"),
    "symlink-long": pax([(b"linkpath", b"t" * 5000)]) + entry(b"s", kind=b"2", link=b"t"),
    # one thing for another
    "file-as-dir": entry(b"a", b"x") + entry(b"a/b", b"x"),
    "dir-replaced": entry(b"d/f", b"x") + entry(b"d", b"x"),
    "lost-and-found": entry(b"lost+found", b"x"),
    "root-as-file": entry(b"./", b"x", kind=b"2", link=b"x"),
    # numbers
    "size-exabytes": header(b"huge", 1 << 61) + b"x" * 512,
    "size-terabytes": header(b"huge", 1 << 40) + b"x" * 512,
    "size-negative": header(b"huge", -5) + b"x" * 512,
    "size-pax-lie": pax([(b"size", b"100000")]) + entry(b"lie", b"short"),
    "owner-huge": entry(b"f", b"x", uid=1 << 40),
    "device-huge": entry(b"dev", kind=b"3", major=1 << 20, minor=1),
    "device": entry(b"dev", kind=b"3", major=1, minor=3) + entry(b"sda", kind=b"4", major=8, minor=0),
    # a layer of an image
    "whiteout": HELLO + entry(b"etc/", kind=b"5") + entry(b"etc/.wh.passwd"),
    "whiteout-opaque": entry(b"etc/", kind=b"5") + entry(b"etc/.wh..wh..opq"),
    "whiteout-hard": HELLO + entry(b".wh.h", kind=b"1", link=b"hello"),
    "whiteout-device": entry(b"etc/passwd", kind=b"3", major=0, minor=0),
    # data
    "truncated": header(b"cut", 100000) + b"x" * 5000,
    "truncated-header": HELLO + header(b"cut", 5)[:300],
    "checksum": HELLO + header(b"bad", 0).replace(b"bad", b"evil", 1)[:512],
    "text": b"this is no archive\n" * 100,
    "nothing": b"",
    "only-zeros": END,
    # sparse: pax 1.0 maps
    "sparse-backwards": pax([(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"),
                             (b"GNU.sparse.name", b"s"), (b"GNU.sparse.realsize", b"100000")])
    + entry(b"x", padded(b"2\n50000\n512\n0\n512\n") + b"x" * 1024),
    "sparse-beyond": pax([(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"),
                          (b"GNU.sparse.name", b"s"), (b"GNU.sparse.realsize", b"1000")])
    + entry(b"x", padded(b"1\n50000\n512\n") + b"x" * 512),
    "sparse-exabytes": pax([(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"),
                            (b"GNU.sparse.name", b"s"),
                            (b"GNU.sparse.realsize", b"4611686018427387904")])
    + entry(b"x", padded(b"1\n4611686018427387000\n512\n") + b"x" * 512),
    "sparse-dotdot": pax([(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"),
                          (b"GNU.sparse.name", b"../evil"), (b"GNU.sparse.realsize", b"1000")])
    + entry(b"x", padded(b"1\n0\n512\n") + b"x" * 512),
    # attributes
    "acl-names": pax([(b"SCHILY.acl.access", b"user::rw-,user:alice:r--,group::r--,mask::r--,other::r--")])
    + entry(b"f", b"x"),
    "acl-junk": pax([(b"SCHILY.xattr.system.posix_acl_access", b"junk" * 9)]) + entry(b"f", b"x"),
    "acl-cut": pax([(b"SCHILY.xattr.system.posix_acl_access", b"\x02\0\0\0\x01\0\x06")]) + entry(b"f", b"x"),
    "xattr-large": pax([(b"SCHILY.xattr.user.large", b"v" * 5000)]) + entry(b"f", b"x"),
    "xattr-many": pax([(b"SCHILY.xattr.user.%d" % i, b"v" * 40) for i in range(400)]) + entry(b"f", b"x"),
    "xattr-space": pax([(b"SCHILY.xattr.com.example.x", b"v")]) + entry(b"f", b"x"),
    "pax-junk": entry(b"pax", b"12 path\nabc", kind=b"x") + entry(b"f", b"x"),
    # filters: the magic of one for which libarchive would run a program
    "filter-program": b"LRZI\0\6" + b"\0" * 600,
    "filter-grzip": b"GRZipII\0\2\4:)" + b"\0" * 600,
}


def bomb():
    """A file of 1.25 GiB of zeros, deflated a little over a thousandfold."""
    c = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = c.compress(header(b"bomb", 20 * 64 * MIB)) + c.flush(zlib.Z_FULL_FLUSH)
    chunk = c.compress(b"\0" * (64 * MIB)) + c.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\3" + data + chunk * 20 + b"\3\0" + b"\0" * 8


def faithful():
    """Everything that must survive."""
    records = [
        (b"SCHILY.xattr.security.capability",
         b"\1\0\0\2\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        (b"SCHILY.acl.access", b"user::rw-,user:1000:r--,group::r--,group:5:rwx,mask::rwx,other::---"),
        (b"SCHILY.fflags", b"nodump"),
        (b"mtime", b"8589934592.123456789"),
        (b"uid", b"70000"), (b"gid", b"4000000000"),
    ]
    data = pax(records) + entry(b"./ping", b"ping\n", mode=0o4755)
    data += entry(b"./", kind=b"5", mode=0o755)
    data += entry(b"./d/", kind=b"5", mode=0o2775)
    data += entry(b"./d/ping2", kind=b"1", link=b"./ping")
    data += pax([(b"SCHILY.acl.default", b"user::rwx,user:1:r-x,group::r-x,mask::r-x,other::---")])
    data += entry(b"./acl/", kind=b"5", mode=0o750)
    # decomposed, composed and not UTF-8 at all: bytes stay as they are
    data += pax([(b"path", "e\u0301.txt".encode())]) + entry(b"n", b"decomposed\n")
    data += pax([(b"path", "\u00e9.txt".encode())]) + entry(b"n", b"composed\n")
    data += entry(b"raw\xff.txt", b"raw\n")
    data += pax([(b"linkpath", "e\u0301.txt".encode())]) + entry(b"s", kind=b"2", link=b"t")
    data += entry(b"fifo", kind=b"6") + entry(b"null", kind=b"3", major=1, minor=3, mode=0o666)
    data += pax([(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"),
                 (b"GNU.sparse.name", b"sparse"), (b"GNU.sparse.realsize", b"6442450944")])
    data += entry(b"x", padded(b"2\n4096\n512\n5368709120\n512\n") + b"1" * 512 + b"2" * 512)
    data += entry(b"replaced", b"first") + entry(b"replaced", b"second")
    data += entry(b"dev/", kind=b"5") + entry(b"dev/tty", kind=b"3", major=5, minor=0)
    return data + END


def save(name, data):
    with open(os.path.join(out, name), "wb") as f:
        f.write(data)


for name, data in archives.items():
    save(name + ".tar", data if name in ("text", "nothing") else data + END if "trunc" not in name
         and not name.startswith("size-") and name != "only-zeros" else data)
good = faithful()
save("faithful.tar", good)
save("faithful.tar.gz", gzip.compress(good, mtime=0))
save("faithful.tar.bz2", bz2.compress(good))
save("faithful.tar.xz", lzma.compress(good))
subprocess.run(["zstd", "-q", "-f", os.path.join(out, "faithful.tar")], check=True)
save("gzip-twice.tar", gzip.compress(gzip.compress(HELLO + END)))
save("gzip-cut.tar", gzip.compress(good, mtime=0)[:400])
save("bomb.tar", bomb())

# an archive by GNU tar itself, with a sparse file and the old format of it
with open(os.path.join(out, "holes"), "wb") as f:
    f.seek(5 << 30)
    f.write(b"end")
for form in "gnu", "pax":
    subprocess.run(["tar", "-C", out, "--format=" + form, "--mtime=@1700000000", "--owner=0",
                    "--group=0", "-Scf", os.path.join(out, "holes-%s.tar" % form), "holes"], check=True)
with tarfile.open(os.path.join(out, "python.tar"), "w", format=tarfile.PAX_FORMAT) as t:
    info = tarfile.TarInfo("a" * 120)
    info.size = 3
    t.addfile(info, io.BytesIO(b"abc"))
