# SPDX-License-Identifier: Apache-2.0
"""What a browser has drawn: reads a PNG with the standard library alone.

    picture.py FILE.png     one line: width, height, height that is used, the background's colour, how many
                            colours cover more than 50 pixels

A page that is blank, unstyled or in the wrong scheme shows in these.
"""
import collections
import struct
import sys
import zlib


def read(path):
    """Width, height, bytes a pixel and the rows of an 8-bit RGB or RGBA picture (PNG, ISO/IEC 15948)."""
    data = open(path, "rb").read()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", "not a PNG"
    at, idat = 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and colour in (2, 6) and not interlace, "another kind of PNG"
        elif kind == b"IDAT":
            idat += body
        at += 12 + size
    pixel = 3 if colour == 2 else 4
    return width, height, pixel, unfilter(zlib.decompress(idat), width * pixel, height, pixel)


def paeth(a, b, c):
    p = a + b - c
    pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
    return a if pa <= pb and pa <= pc else b if pb <= pc else c


def unfilter(raw, stride, height, pixel):
    rows, last = [], bytearray(stride)
    for y in range(height):
        kind = raw[y * (stride + 1)]
        row = bytearray(raw[y * (stride + 1) + 1 : (y + 1) * (stride + 1)])
        if kind == 2:
            row = bytearray((x + up) & 255 for x, up in zip(row, last))
        elif kind:
            for i in range(stride):
                a = row[i - pixel] if i >= pixel else 0
                b = last[i]
                if kind == 1:
                    add = a
                elif kind == 3:
                    add = (a + b) // 2
                else:
                    add = paeth(a, b, last[i - pixel] if i >= pixel else 0)
                row[i] = (row[i] + add) & 255
        rows.append(row)
        last = row
    return rows


def main():
    width, height, pixel, rows = read(sys.argv[1])
    counts = collections.Counter()
    used = 0
    for y, row in enumerate(rows):
        here = collections.Counter(bytes(row[i : i + 3]) for i in range(0, len(row), pixel))
        if len(here) > 1:
            used = y + 1
        counts.update(here)
    background = bytes(rows[0][:3])
    colours = sum(1 for n in counts.values() if n > 50)
    print(width, height, used, "#" + background.hex(), colours)


if __name__ == "__main__":
    main()
