# Compiled twin of octets.py. The bodies stand here so that the C compiler inlines them into every module that
# cimports them.
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__x86_64__)
    #include <nmmintrin.h>
    #elif defined(__aarch64__)
    #include <arm_acle.h>
    #if defined(__linux__)
    #include <asm/hwcap.h>
    #include <sys/auxv.h>
    #endif
    #endif
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define GOMQ_BE16(v) (v)
    #define GOMQ_BE32(v) (v)
    #define GOMQ_BE64(v) (v)
    #define GOMQ_LE16(v) __builtin_bswap16(v)
    #define GOMQ_LE32(v) __builtin_bswap32(v)
    #define GOMQ_LE64(v) __builtin_bswap64(v)
    #else
    #define GOMQ_BE16(v) __builtin_bswap16(v)
    #define GOMQ_BE32(v) __builtin_bswap32(v)
    #define GOMQ_BE64(v) __builtin_bswap64(v)
    #define GOMQ_LE16(v) (v)
    #define GOMQ_LE32(v) (v)
    #define GOMQ_LE64(v) (v)
    #endif
    static inline uint32_t gomq_be16(const uint8_t *p, Py_ssize_t i) {
        uint16_t v; memcpy(&v, p + i, 2); return GOMQ_BE16(v);
    }
    static inline uint32_t gomq_be32(const uint8_t *p, Py_ssize_t i) {
        uint32_t v; memcpy(&v, p + i, 4); return GOMQ_BE32(v);
    }
    static inline uint64_t gomq_be64(const uint8_t *p, Py_ssize_t i) {
        uint64_t v; memcpy(&v, p + i, 8); return GOMQ_BE64(v);
    }
    static inline uint32_t gomq_le16(const uint8_t *p, Py_ssize_t i) {
        uint16_t v; memcpy(&v, p + i, 2); return GOMQ_LE16(v);
    }
    static inline uint32_t gomq_le32(const uint8_t *p, Py_ssize_t i) {
        uint32_t v; memcpy(&v, p + i, 4); return GOMQ_LE32(v);
    }
    static inline uint64_t gomq_le64(const uint8_t *p, Py_ssize_t i) {
        uint64_t v; memcpy(&v, p + i, 8); return GOMQ_LE64(v);
    }
    static inline void gomq_put_be16(uint8_t *p, Py_ssize_t i, uint32_t n) {
        uint16_t v = GOMQ_BE16((uint16_t)n); memcpy(p + i, &v, 2);
    }
    static inline void gomq_put_be32(uint8_t *p, Py_ssize_t i, uint32_t n) {
        uint32_t v = GOMQ_BE32(n); memcpy(p + i, &v, 4);
    }
    static inline void gomq_put_be64(uint8_t *p, Py_ssize_t i, uint64_t n) {
        uint64_t v = GOMQ_BE64(n); memcpy(p + i, &v, 8);
    }
    static inline void gomq_put_le16(uint8_t *p, Py_ssize_t i, uint32_t n) {
        uint16_t v = GOMQ_LE16((uint16_t)n); memcpy(p + i, &v, 2);
    }
    static inline void gomq_put_le32(uint8_t *p, Py_ssize_t i, uint32_t n) {
        uint32_t v = GOMQ_LE32(n); memcpy(p + i, &v, 4);
    }
    static inline void gomq_put_le64(uint8_t *p, Py_ssize_t i, uint64_t n) {
        uint64_t v = GOMQ_LE64(n); memcpy(p + i, &v, 8);
    }
    static inline void gomq_copy(uint8_t *d, Py_ssize_t di, const uint8_t *s, Py_ssize_t si, Py_ssize_t n) {
        memcpy(d + di, s + si, n);
    }
    static inline int gomq_same(
        const uint8_t *a, Py_ssize_t ai, const uint8_t *b, Py_ssize_t bi, Py_ssize_t n) {
        return memcmp(a + ai, b + bi, n) == 0;
    }

    /* CRC-32C by tables, eight octets at a time, for processors without an instruction for it: 12 times as
       fast as bit by bit, a fifth of SSE4.2's. Made at the first use, the same tables whoever makes them. */
    static uint32_t gomq_crc32c_tables[8][256];
    static void gomq_crc32c_make_tables(void) {
        for (uint32_t octet = 0; octet < 256; octet++) {
            uint32_t crc = octet;
            for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1u)));
            gomq_crc32c_tables[0][octet] = crc;
        }
        for (int table = 1; table < 8; table++) {
            for (uint32_t octet = 0; octet < 256; octet++) {
                uint32_t crc = gomq_crc32c_tables[table - 1][octet];
                gomq_crc32c_tables[table][octet] = (crc >> 8) ^ gomq_crc32c_tables[0][crc & 0xFF];
            }
        }
    }
    static uint32_t gomq_crc32c_soft(uint32_t crc, const uint8_t *p, Py_ssize_t n) {
        static int made = 0;
        const uint32_t (*table)[256] = (const uint32_t (*)[256])gomq_crc32c_tables;
        uint64_t v;
        if (!__atomic_load_n(&made, __ATOMIC_ACQUIRE)) {
            gomq_crc32c_make_tables();
            __atomic_store_n(&made, 1, __ATOMIC_RELEASE);
        }
        for (; n >= 8; p += 8, n -= 8) {
            memcpy(&v, p, 8);
            v = GOMQ_LE64(v) ^ crc;
            crc = table[7][v & 0xFF] ^ table[6][v >> 8 & 0xFF] ^ table[5][v >> 16 & 0xFF]
                ^ table[4][v >> 24 & 0xFF] ^ table[3][v >> 32 & 0xFF] ^ table[2][v >> 40 & 0xFF]
                ^ table[1][v >> 48 & 0xFF] ^ table[0][v >> 56];
        }
        while (n--) crc = (crc >> 8) ^ table[0][(crc ^ *p++) & 0xFF];
        return crc;
    }

    /* By the processor's instruction where it has one: always (HARD is 1), or as it says at the first use. */
    #if defined(__x86_64__)
    #define GOMQ_CRC32C_TARGET __attribute__((target("sse4.2")))
    #define GOMQ_CRC32C_HARD (__builtin_cpu_init(), __builtin_cpu_supports("sse4.2") != 0)
    #define GOMQ_CRC32C_WORD uint64_t  /* as the instruction has it: no narrowing between two of them */
    #define GOMQ_CRC32C_8 _mm_crc32_u64
    #define GOMQ_CRC32C_4 _mm_crc32_u32
    #define GOMQ_CRC32C_2 _mm_crc32_u16
    #define GOMQ_CRC32C_1 _mm_crc32_u8
    #elif defined(__aarch64__) && (defined(__ARM_FEATURE_CRC32) || defined(__linux__) && !defined(__clang__))
    /* Optional in ARMv8.0, part of ARMv8.1. A clang declares these only where the whole file may use them. */
    #if defined(__ARM_FEATURE_CRC32)
    #define GOMQ_CRC32C_TARGET
    #define GOMQ_CRC32C_HARD 1
    #else
    #define GOMQ_CRC32C_TARGET __attribute__((target("+crc")))
    #define GOMQ_CRC32C_HARD ((getauxval(AT_HWCAP) & HWCAP_CRC32) != 0)
    #endif
    #define GOMQ_CRC32C_WORD uint32_t
    #define GOMQ_CRC32C_8 __crc32cd
    #define GOMQ_CRC32C_4 __crc32cw
    #define GOMQ_CRC32C_2 __crc32ch
    #define GOMQ_CRC32C_1 __crc32cb
    #endif

    #if defined(GOMQ_CRC32C_HARD)
    /* The instruction takes three cycles and another may begin in each: so three parts of a long range are
       walked at once, 2.5 times as fast. The sum of a part is carried over the octets behind it, as if these
       were zeros, by tables. */
    #define GOMQ_CRC32C_PART 2048
    static uint32_t gomq_crc32c_carried[4][256];
    GOMQ_CRC32C_TARGET static void gomq_crc32c_make_carried(void) {
        uint32_t bits[32];
        for (int bit = 0; bit < 32; bit++) {
            GOMQ_CRC32C_WORD c = (uint32_t)1 << bit;
            for (int i = 0; i < GOMQ_CRC32C_PART; i += 8) c = GOMQ_CRC32C_8(c, 0);
            bits[bit] = (uint32_t)c;
        }
        for (int place = 0; place < 4; place++) {
            for (int octet = 0; octet < 256; octet++) {
                uint32_t carried = 0;
                for (int bit = 0; bit < 8; bit++) {
                    if (octet >> bit & 1) carried ^= bits[8 * place + bit];
                }
                gomq_crc32c_carried[place][octet] = carried;  /* the same whoever makes them */
            }
        }
    }
    static inline uint32_t gomq_crc32c_carry(uint32_t crc) {
        return gomq_crc32c_carried[0][crc & 0xFF] ^ gomq_crc32c_carried[1][crc >> 8 & 0xFF]
            ^ gomq_crc32c_carried[2][crc >> 16 & 0xFF] ^ gomq_crc32c_carried[3][crc >> 24];
    }
    GOMQ_CRC32C_TARGET static uint32_t gomq_crc32c_long(uint32_t crc, const uint8_t *p) {
        GOMQ_CRC32C_WORD a = crc, b = 0, c = 0;
        uint64_t v;
        for (const uint8_t *end = p + GOMQ_CRC32C_PART; p < end; p += 8) {
            memcpy(&v, p, 8); a = GOMQ_CRC32C_8(a, GOMQ_LE64(v));
            memcpy(&v, p + GOMQ_CRC32C_PART, 8); b = GOMQ_CRC32C_8(b, GOMQ_LE64(v));
            memcpy(&v, p + 2 * GOMQ_CRC32C_PART, 8); c = GOMQ_CRC32C_8(c, GOMQ_LE64(v));
        }
        return gomq_crc32c_carry(gomq_crc32c_carry((uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
    }
    GOMQ_CRC32C_TARGET static uint32_t gomq_crc32c_hard(uint32_t crc, const uint8_t *p, Py_ssize_t n) {
        for (; n >= 3 * GOMQ_CRC32C_PART; p += 3 * GOMQ_CRC32C_PART, n -= 3 * GOMQ_CRC32C_PART) {
            crc = gomq_crc32c_long(crc, p);
        }
        GOMQ_CRC32C_WORD c = crc;
        uint64_t v;
        while (n >= 8) { memcpy(&v, p, 8); c = GOMQ_CRC32C_8(c, GOMQ_LE64(v)); p += 8; n -= 8; }
        crc = (uint32_t)c;
        if (n & 4) { uint32_t w; memcpy(&w, p, 4); crc = GOMQ_CRC32C_4(crc, GOMQ_LE32(w)); p += 4; }
        if (n & 2) { uint16_t w; memcpy(&w, p, 2); crc = GOMQ_CRC32C_2(crc, GOMQ_LE16(w)); p += 2; }
        if (n & 1) { crc = GOMQ_CRC32C_1(crc, *p); }
        return crc;
    }
    static inline uint32_t gomq_crc32c(uint32_t seed, const uint8_t *p, Py_ssize_t i, Py_ssize_t n) {
        static int known = -1;
        int hard = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
        if (hard < 0) {
            hard = GOMQ_CRC32C_HARD;
            if (hard) gomq_crc32c_make_carried();
            __atomic_store_n(&known, hard, __ATOMIC_RELEASE);
        }
        return ~(hard ? gomq_crc32c_hard(~seed, p + i, n) : gomq_crc32c_soft(~seed, p + i, n));
    }
    #else
    static inline uint32_t gomq_crc32c(uint32_t seed, const uint8_t *p, Py_ssize_t i, Py_ssize_t n) {
        return ~gomq_crc32c_soft(~seed, p + i, n);
    }
    #endif

    static inline const uint8_t *gomq_bytes_pointer(PyObject *b) {
        return (const uint8_t *)PyBytes_AS_STRING(b);
    }
    """
    unsigned int be16 "gomq_be16"(const unsigned char*, Py_ssize_t) noexcept nogil
    unsigned int be32 "gomq_be32"(const unsigned char*, Py_ssize_t) noexcept nogil
    uint64_t be64 "gomq_be64"(const unsigned char*, Py_ssize_t) noexcept nogil
    unsigned int le16 "gomq_le16"(const unsigned char*, Py_ssize_t) noexcept nogil
    unsigned int le32 "gomq_le32"(const unsigned char*, Py_ssize_t) noexcept nogil
    uint64_t le64 "gomq_le64"(const unsigned char*, Py_ssize_t) noexcept nogil
    void put_be16 "gomq_put_be16"(unsigned char*, Py_ssize_t, unsigned int) noexcept nogil
    void put_be32 "gomq_put_be32"(unsigned char*, Py_ssize_t, unsigned int) noexcept nogil
    void put_be64 "gomq_put_be64"(unsigned char*, Py_ssize_t, uint64_t) noexcept nogil
    void put_le16 "gomq_put_le16"(unsigned char*, Py_ssize_t, unsigned int) noexcept nogil
    void put_le32 "gomq_put_le32"(unsigned char*, Py_ssize_t, unsigned int) noexcept nogil
    void put_le64 "gomq_put_le64"(unsigned char*, Py_ssize_t, uint64_t) noexcept nogil
    void copy "gomq_copy"(unsigned char*, Py_ssize_t, const unsigned char*, Py_ssize_t,
            Py_ssize_t) noexcept nogil
    bint same "gomq_same"(const unsigned char*, Py_ssize_t, const unsigned char*, Py_ssize_t,
            Py_ssize_t) noexcept nogil
    uint32_t crc32c "gomq_crc32c"(uint32_t, const unsigned char*, Py_ssize_t, Py_ssize_t) noexcept nogil


cdef inline bytes part(const unsigned char* p, Py_ssize_t i, Py_ssize_t count):
    return p[i:i + count]


cdef inline unsigned char* pointer(object buffer) except NULL:
    # The export ends with this call: the owner keeps the buffer alive and unresized for as long as the
    # pointer is used. Written by hand, because a typed memoryview would put its 20 000 lines of C into every
    # module that uses octets.
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    cdef unsigned char* start = <unsigned char*> view.buf
    PyBuffer_Release(&view)
    return start if start != NULL else <unsigned char*> b""
