"""The C of gomq_py/octets.pxd in a program of its own, so that it runs where no Python of that processor is.

Each way to a CRC-32C that the processor can take is compared with the published values and, octet by octet,
with the definition; and integers with what they are in octets.
"""
import subprocess
from pathlib import Path

DECLARATIONS = Path(__file__).resolve().parents[2] / "gomq_py" / "octets.pxd"
# What C has of Python in the block, and what calls it. RFC 3720 B.4, and the check value of CRC-32C.
BEFORE = r"""
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
typedef ptrdiff_t Py_ssize_t;
typedef struct object PyObject;
#define PyBytes_AS_STRING(object) ((char *)(object))
"""
AFTER = r"""
typedef uint32_t way(uint32_t, const uint8_t *, Py_ssize_t);

static uint32_t by_definition(uint32_t crc, const uint8_t *p, Py_ssize_t n) {
    while (n--) {
        crc ^= *p++;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
    }
    return crc;
}

static void fail(const char *name, long what, uint32_t is, uint32_t should) {
    printf("%s: %ld is %08x, not %08x\n", name, what, (unsigned)is, (unsigned)should);
    exit(1);
}

static uint8_t zeros[32], ones[32], rising[32], falling[32], others[20000];
static const uint8_t pdu[48] = {
    0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 0x04, 0,
    0, 0, 0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0, 0};

static void compare(const char *name, way *crc32c) {
    static const struct { const uint8_t *p; Py_ssize_t n; uint32_t crc; } known[] = {
        {zeros, 32, 0x8A9136AA}, {ones, 32, 0x62A8AB43}, {rising, 32, 0x46DD794E}, {falling, 32, 0x113FDB5C},
        {pdu, 48, 0xD9963A56}, {(const uint8_t *)"123456789", 9, 0xE3069283}, {zeros, 0, 0}};
    static const uint32_t seeds[] = {0, 1, 0x80000000u, 0xFFFFFFFFu, 0x12345678u};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t crc = ~crc32c(~0u, known[i].p, known[i].n);
        if (crc != known[i].crc) fail(name, (long)i, crc, known[i].crc);
    }
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        for (Py_ssize_t start = 0; start < 9; start++) {
            for (Py_ssize_t n = 0; n < 100; n++) {
                uint32_t crc = crc32c(seeds[i], others + start, n);
                uint32_t should = by_definition(seeds[i], others + start, n);
                if (crc != should) fail(name, (long)n, crc, should);
            }
        }
    }
    /* long ones, of which parts are walked at once */
    static const Py_ssize_t lengths[] = {6143, 6144, 6145, 8191, 12287, 12288, 12289, 18432, 19990};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (size_t j = 0; j < sizeof seeds / sizeof *seeds; j++) {
            for (Py_ssize_t start = 0; start < 9; start++) {
                uint32_t crc = crc32c(seeds[j], others + start, lengths[i]);
                uint32_t should = by_definition(seeds[j], others + start, lengths[i]);
                if (crc != should) fail(name, (long)lengths[i], crc, should);
            }
        }
    }
    printf("%s: right\n", name);
}

static uint32_t as_chosen(uint32_t crc, const uint8_t *p, Py_ssize_t n) {
    return ~gomq_crc32c(gomq_crc32c(~crc, p, 0, n / 3), p, n / 3, n - n / 3);
}

static void integers(void) {
    static const uint8_t octets[9] = {0xEE, 0x81, 0x12, 0x23, 0x34, 0x45, 0x56, 0x67, 0x78};
    uint8_t made[9] = {0xEE};
    if (gomq_be16(octets, 1) != 0x8112 || gomq_le16(octets, 1) != 0x1281) fail("integers", 16, 0, 1);
    if (gomq_be32(octets, 1) != 0x81122334u || gomq_le32(octets, 1) != 0x34231281u) fail("integers", 32, 0, 1);
    if (gomq_be64(octets, 1) != 0x8112233445566778u) fail("integers", 64, 0, 1);
    if (gomq_le64(octets, 1) != 0x7867564534231281u) fail("integers", 64, 0, 2);
    gomq_put_be64(made, 1, 0x8112233445566778u);
    if (!gomq_same(made, 0, octets, 0, 9)) fail("integers", 64, 0, 3);
    gomq_put_le64(made, 1, 0x7867564534231281u);
    if (!gomq_same(made, 0, octets, 0, 9)) fail("integers", 64, 0, 4);
    gomq_put_be32(made, 1, 0x81122334u);
    gomq_put_le32(made, 5, 0x78675645u);
    if (!gomq_same(made, 0, octets, 0, 9)) fail("integers", 32, 0, 5);
    gomq_put_be16(made, 1, 0x8112);
    gomq_put_le16(made, 3, 0x3423);
    if (!gomq_same(made, 0, octets, 0, 9)) fail("integers", 16, 0, 6);
    printf("integers: right\n");
}

int main(void) {
    for (int i = 0; i < 20000; i++) {
        others[i] = (uint8_t)(i * 167 + (i >> 8) * 29 + 13);
        if (i < 32) { ones[i] = 0xFF; rising[i] = (uint8_t)i; falling[i] = (uint8_t)(31 - i); }
    }
    compare("tables", gomq_crc32c_soft);
#if defined(GOMQ_CRC32C_HARD)
    if (GOMQ_CRC32C_HARD) {
        gomq_crc32c_make_carried();
        compare("instructions", gomq_crc32c_hard);
    }
    else printf("instructions: none here\n");
#else
    printf("instructions: none here\n");
#endif
    compare("as called, in two parts", as_chosen);
    integers();
    return 0;
}
"""


def block():
    """The C that the compiled modules include."""
    return DECLARATIONS.read_text(encoding="utf-8").split('"""')[1]


def compiled(folder, compiler, *flags):
    """The path of the program, compiled with warnings as errors.

    Raises CalledProcessError, and prints why.
    """
    source, program = folder / "octets.c", folder / "octets"
    source.write_text(BEFORE + block() + AFTER, encoding="utf-8")
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
    subprocess.run([compiler, "-O2", *warnings, *flags, "-o", program, source], check=True)
    return program
