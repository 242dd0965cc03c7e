"""Image files that no encoder would write: each is read, or refused by name.

Real files of every format are mutated; each mutant is read in a child process, under an alarm and a limit on
memory. Anything else is a failure: another exception, a warning, a crash, more than 2 s, or more memory than
images.read promises. `mutant(seed, index)` gives the file of a failure again.
"""

import io
import json
import random
import resource
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from harness import Trial, scenario
from PIL import Image, PngImagePlugin, TiffImagePlugin, features

from sfumato import images
from sfumato.errors import ImageError
from sfumato.images import reading

SECONDS = 2
# Smaller than what images.read allows: thousands of mutants that declare all of it are read in minutes.
PIXELS = 8_000_000
PEAK_BYTES = 20 * PIXELS + (64 << 20)  # what images.read promises, and threads and code loaded on the way


@cache
def originals() -> dict[str, list[bytes]]:
    """Real files: by format, in the modes and with the options that are coded differently."""
    y, x = np.mgrid[0:24, 0:32]
    array = np.stack([x * 8, y * 10, (x * y) % 256], axis=2).astype(np.uint8)
    colour = Image.fromarray(array)
    grey, palette, bilevel = colour.convert("L"), colour.quantize(60), colour.convert("1")
    clear = colour.convert("RGBA")
    clear.putalpha(Image.fromarray((x * 8).astype(np.uint8)))
    deep = Image.fromarray((x * y * 80).astype(np.uint16))
    text = PngImagePlugin.PngInfo()
    text.add_text("Comment", "a comment" * 20, zip=True)
    text.add_itxt("XML:com.adobe.xmp", "<x/>")
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a description"
    exif.get_ifd(0x8825)[0x001B] = b"a place"
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[270] = "a description"
    second = colour.rotate(90)
    files = {
        "JPEG": [
            encoded(colour, "JPEG", exif=exif, comment=b"a comment", icc_profile=bytes(200)),
            encoded(colour, "JPEG", progressive=True, subsampling=0),
            encoded(colour.convert("CMYK"), "JPEG"),
            encoded(grey, "JPEG", restart_marker_blocks=2),
            encoded(colour, "MPO", second=second),
        ],
        "PNG": [
            encoded(colour, "PNG", exif=exif, pnginfo=text, icc_profile=bytes(200)),
            encoded(palette, "PNG", transparency=3),
            encoded(clear, "PNG"),
            encoded(deep, "PNG"),
            encoded(bilevel, "PNG"),
            encoded(colour, "PNG", second=second),
        ],
        "WEBP": [
            encoded(colour, "WEBP", exif=exif, xmp=b"<x/>", icc_profile=bytes(200)),
            encoded(clear, "WEBP", lossless=True),
            encoded(clear, "WEBP"),
            encoded(colour, "WEBP", second=second),
        ],
        "TIFF": [
            encoded(colour, "TIFF", tiffinfo=tags, icc_profile=bytes(200)),
            encoded(deep, "TIFF"),
            *(
                encoded(colour, "TIFF", compression=f"tiff_{each}")
                for each in ("lzw", "adobe_deflate", "jpeg")
            ),
            encoded(clear, "TIFF", compression="packbits"),
            encoded(bilevel, "TIFF", compression="group4"),
            encoded(palette, "TIFF", second=second),
            encoded(Image.frombytes("LAB", colour.size, colour.tobytes()), "TIFF"),  # converted, it varies
            encoded(colour.convert("YCbCr"), "TIFF"),
        ],
        "BMP": [encoded(picture, "BMP") for picture in (colour, palette, bilevel, clear)],
        "GIF": [
            encoded(palette, "GIF", comment=b"a comment", transparency=3),
            encoded(grey, "GIF", interlace=1),
            encoded(colour, "GIF", second=second),
        ],
    }
    if features.check("avif"):
        files["AVIF"] = [encoded(colour, "AVIF", exif=exif), encoded(clear, "AVIF")]
        files["AVIF"].append(encoded(colour, "AVIF", second=second))
    try:
        from pillow_heif import from_pillow
    except ImportError:
        return files
    files["HEIF"] = []
    for picture, settings in ((colour, {"exif": exif.tobytes()}), (clear, {}), (grey, {"thumbnails": [16]})):
        buffer = io.BytesIO()
        from_pillow(picture).save(buffer, **settings)
        files["HEIF"].append(buffer.getvalue())
    return files


def encoded(picture: Image.Image, form: str, second: Image.Image | None = None, **settings: Any) -> bytes:
    """The bytes of a file, of two pictures if there is a second."""
    buffer = io.BytesIO()
    if second:
        settings |= {"save_all": True, "append_images": [second.copy()]}
    picture.copy().save(buffer, form, **settings)  # copies: saving leaves settings with an image
    return buffer.getvalue()


def mutant(seed: int, index: int) -> tuple[str, bytes]:
    """The format that a mutant began as, and its bytes: the same each time, but of AVIF sequences."""
    dice = random.Random(f"{seed}/{index}")
    files = originals()
    name = dice.choice(list(files))
    data = bytearray(dice.choice(files[name]))
    for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
        data = dice.choice(MUTATIONS)(data, dice) or bytearray(1)
    if data[:4] == b"\x89PNG" and dice.random() < 0.7:
        data = with_png_checksums(data)
    return name, bytes(data)


def flip_bits(data: bytearray, dice: random.Random) -> bytearray:
    """One to eight bits, anywhere."""
    for _ in range(dice.randint(1, 8)):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return data


def edit_header(data: bytearray, dice: random.Random) -> bytearray:
    """A byte among the first 64."""
    data[dice.randrange(min(64, len(data)))] = dice.choice((0, 1, 2, 127, 128, 254, 255, dice.randrange(256)))
    return data


def overwrite(data: bytearray, dice: random.Random) -> bytearray:
    """A run of one byte, or of noise."""
    start, length = dice.randrange(len(data)), dice.randint(1, 64)
    run = dice.choice((bytes(length), b"\xff" * length, dice.randbytes(length)))
    data[start : start + length] = run
    return data


def edit_number(data: bytearray, dice: random.Random) -> bytearray:
    """A size, length or offset: two or four bytes, in either order, extreme or nearly right."""
    form = dice.choice(("<H", ">H", "<I", ">I"))
    width = struct.calcsize(form)
    place = dice.randrange(max(1, min(len(data) - width, dice.choice((64, 256, len(data))))))
    if place + width > len(data):
        return data
    (value,) = struct.unpack_from(form, data, place)
    top = 256**width - 1
    values = (0, 1, top, top // 2, top // 2 + 1, value + 1, value - 1, value * 2, 3000, 8000, 65_535, 100_000)
    struct.pack_into(form, data, place, dice.choice(values) & top)
    return data


def truncate(data: bytearray, dice: random.Random) -> bytearray:
    """The beginning only."""
    return data[: dice.randint(1, len(data))]


def insert(data: bytearray, dice: random.Random) -> bytearray:
    """Garbage in between."""
    place = dice.randrange(len(data))
    garbage = dice.choice((dice.randbytes(dice.randint(1, 64)), bytes(dice.randint(1, 4096)), b"\xff" * 100))
    return data[:place] + garbage + data[place:]


def splice(data: bytearray, dice: random.Random) -> bytearray:
    """The beginning of one file and the end of another, of any format."""
    other = dice.choice(dice.choice(list(originals().values())))
    return data[: dice.randint(1, len(data))] + other[dice.randrange(len(other)) :]


def shuffle_parts(data: bytearray, dice: random.Random) -> bytearray:
    """Two chunks, segments or boxes swapped, or one of them gone, or there many times."""
    parts = parts_of(data)
    i, j = dice.randrange(len(parts)), dice.randrange(len(parts))
    match dice.randrange(3):
        case 0:
            parts[i], parts[j] = parts[j], parts[i]
        case 1 if len(parts) > 1:
            del parts[i]
        case _:
            parts[i] = parts[i] * dice.choice((2, 3, 50))
    return bytearray(b"".join(parts))


def two_heads(data: bytearray, dice: random.Random) -> bytearray:
    """One of the first parts a second time, with other numbers in it: a size that is told twice."""
    parts = parts_of(data)
    i = dice.randrange(min(4, len(parts)))
    copy = bytearray(parts[i])
    for _ in range(dice.randint(1, 2)):
        copy = edit_number(copy, dice) if len(copy) > 4 else copy
    parts.insert(dice.randrange(i + 1, len(parts) + 1) if dice.random() < 0.7 else i, copy)
    return bytearray(b"".join(parts))


def mixed(data: bytearray, dice: random.Random) -> bytearray:
    """Parts of two files of one format, in turn."""
    kin = next((files for files in originals().values() if any(each[:3] == data[:3] for each in files)), [])
    if not kin:
        return data
    parts, others = parts_of(data), parts_of(bytearray(dice.choice(kin)))
    for _ in range(dice.randint(1, 3)):
        parts.insert(dice.randrange(len(parts) + 1), dice.choice(others))
    return bytearray(b"".join(parts))


def parts_of(data: bytearray) -> list[bytearray]:
    """A file, cut where its parts begin."""
    cuts = boundaries(data)
    return [data[start:end] for start, end in zip(cuts, [*cuts[1:], len(data)], strict=True)]


def boundaries(data: bytearray) -> list[int]:
    """Where the parts of a file begin, as far as they can be followed; every 16 bytes of other formats."""
    if data[:4] == b"\x89PNG":
        place, step = 8, lambda at: 12 + struct.unpack_from(">I", data, at)[0]
    elif data[:4] == b"RIFF":
        place, step = 12, lambda at: 8 + (struct.unpack_from("<I", data, at + 4)[0] + 1) // 2 * 2
    elif data[:2] == b"\xff\xd8":
        place, step = 2, lambda at: 2 + struct.unpack_from(">H", data, at + 2)[0]
    elif data[4:8] == b"ftyp":
        place, step = 0, lambda at: max(8, struct.unpack_from(">I", data, at)[0])
    else:
        return list(range(0, len(data), 16))
    cuts = [0]
    while place + 8 <= len(data):
        cuts.append(place)
        place += step(place)
    return cuts


def with_png_checksums(data: bytearray) -> bytearray:
    """The same chunks with right checksums, so that more than the checksum is tested."""
    for start in boundaries(data)[1:]:
        (length,) = struct.unpack_from(">I", data, start)
        end = start + 8 + length
        if end + 4 <= len(data):
            struct.pack_into(">I", data, end, zlib.crc32(data[start + 4 : end]))
    return data


MUTATIONS: tuple[Callable[[bytearray, random.Random], bytearray], ...] = (
    *(flip_bits, edit_header, overwrite, edit_number, edit_number, truncate),
    *(insert, splice, shuffle_parts, two_heads, mixed),
)


def outcome(data: bytes) -> str:
    """Of one file: "read", "refused: <cause>" or "FAILED: <exception>"."""
    try:
        images.read(data, channels=None)
    except ImageError as error:
        return f"refused: {error.cause}"
    except Exception as error:
        return f"FAILED: {type(error).__name__}: {error}"
    return "read"


def child(seed: int, begin: int, end: int) -> None:
    """Read mutants, and print a line before and after each."""
    reading.MAX_PIXELS = PIXELS
    for files in originals().values():
        for file in files:
            images.read(file)  # loads what is loaded on first use
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    virtual = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = virtual + PEAK_BYTES + (1 << 30)  # threads reserve addresses that they do not use
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for index in range(begin, end):
        _, data = mutant(seed, index)
        print(index, flush=True)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)  # its signal ends the process, in C code too
        started = time.perf_counter()
        result = outcome(data)
        milliseconds = 1000 * (time.perf_counter() - started)
        signal.setitimer(signal.ITIMER_REAL, 0)
        peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        if peak > PEAK_BYTES:
            result = f"FAILED: {peak >> 20} MB of memory"
        print(json.dumps([result, milliseconds, peak]), flush=True)
        if result.startswith("FAILED"):
            return  # a fresh process measures the next


@scenario(
    "Damaged image files",
    "files of eight formats are mutated: bits, numbers, parts, heads, ends",
    "each is read or refused by name, in 2 s, in the memory that is promised, without a warning",
)
def images_damaged(trial: Trial) -> None:
    count, index = trial.size(50_000), 0
    trial.figures |= {"mutants": count, "read": 0}
    while index < count:  # in as many children as it takes
        words = [sys.executable, "-W", "error", __file__, *map(str, (trial.seed, index, count))]
        process = subprocess.run(words, capture_output=True, text=True, check=False)
        if process.returncode > 0:
            raise RuntimeError(process.stderr)
        trial.check(not process.stderr, f"it printed {process.stderr[:200]!r}")
        lines = process.stdout.splitlines()
        if len(lines) % 2:  # it died over the last one
            died = f"FAILED: {signal.Signals(-process.returncode).name}"
            lines.append(json.dumps([died, 1000 * SECONDS, 0]))
        for line in lines[1::2]:
            result, milliseconds, used = json.loads(line)
            trial.figures["read"] += result == "read"
            trial.most("ms the slowest", round(milliseconds))
            trial.most("MB the largest", used >> 20)
            if result.startswith("FAILED"):
                named = f"mutant({trial.seed}, {index}), once {mutant(trial.seed, index)[0]}"
                trial.problems.append(f"{named}: {result}")
            index += 1


if __name__ == "__main__":
    child(*map(int, sys.argv[1:]))
