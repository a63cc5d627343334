//! Sixty-four bytes of JSON text as bit masks: bit `i` describes byte `i`.
//!
//! Blocks are processed with the widest vectors of the processor, which is asked at run time.
use fearless_simd::prelude::*;
use fearless_simd::{Level, Simd, dispatch, mask8x64, u8x64};
use wide::u8x16;

/// Number of bytes of a block: the number of bits of a word.
pub(super) const BLOCK_BYTES: usize = 64;
/// Number of bytes of a string processed in one step.
const LANE_BYTES: usize = 16;

/// The positions of structural bytes, inside and outside strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) quotes: u64,
    pub(super) backslashes: u64,
    /// `{` and `[`.
    pub(super) opens: u64,
    /// `}` and `]`.
    pub(super) closes: u64,
}

impl Block {
    #[inline(always)]
    pub(super) fn of<S: Simd>(simd: S, bytes: &[u8; BLOCK_BYTES]) -> Self {
        let bytes = u8x64::from_slice(simd, bytes);
        // With the bit set in which the two kinds of brackets differ, each side becomes one letter.
        // No other byte becomes it.
        let brackets = bytes | u8x64::splat(simd, 0x20);
        let positions = |is: mask8x64<S>| is.to_bitmask();
        Self {
            quotes: positions(bytes.simd_eq(u8x64::splat(simd, b'"'))),
            backslashes: positions(bytes.simd_eq(u8x64::splat(simd, b'\\'))),
            opens: positions(brackets.simd_eq(u8x64::splat(simd, b'{'))),
            closes: positions(brackets.simd_eq(u8x64::splat(simd, b'}'))),
        }
    }
}

/// Whether all bytes are ASCII.
pub(crate) fn is_ascii(bytes: &[u8]) -> bool {
    #[inline(always)]
    fn run<S: Simd>(simd: S, bytes: &[u8]) -> bool {
        let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
        let any = blocks
            .iter()
            .fold(u8x64::splat(simd, 0), |any, block| any | u8x64::from_slice(simd, block));
        let is_high = (any & u8x64::splat(simd, 0x80)).simd_eq(u8x64::splat(simd, 0x80));
        is_high.to_bitmask() == 0 && rest.is_ascii()
    }
    dispatch!(Level::new(), simd => run(simd, bytes))
}

/// Number of bytes before the first quote or backslash in `bytes`; `None` if there is none.
#[inline(always)]
pub(super) fn string_stop(bytes: &[u8]) -> Option<usize> {
    // Most strings of an object are short, so one or two steps find their end. For long ones a
    // search with wider steps pays off.
    const SHORT_STEPS: usize = 4;
    let (lanes, _) = bytes.as_chunks::<LANE_BYTES>();
    let lanes = &lanes[..lanes.len().min(SHORT_STEPS)];
    for (idx, lane) in lanes.iter().enumerate() {
        let lane = u8x16::new(*lane);
        let found = lane.simd_eq(u8x16::splat(b'"')) | lane.simd_eq(u8x16::splat(b'\\'));
        let found = found.to_bitmask();
        if found != 0 {
            return Some(idx * LANE_BYTES + found.trailing_zeros() as usize);
        }
    }
    let seen = lanes.len() * LANE_BYTES;
    Some(seen + memchr::memchr2(b'"', b'\\', &bytes[seen..])?)
}

/// Bit `i` of the result is set if an odd number of the bits up to and including bit `i` is set.
#[inline(always)]
pub(super) fn parity(mut bits: u64) -> u64 {
    bits ^= bits << 1;
    bits ^= bits << 2;
    bits ^= bits << 4;
    bits ^= bits << 8;
    bits ^= bits << 16;
    bits ^ bits << 32
}

/// The bytes that a backslash escapes. `is_escaped` is whether the first byte is escaped, and is
/// updated for the byte after the block. Assumes that all backslashes are in strings.
#[inline(always)]
pub(super) fn escaped(backslashes: u64, is_escaped: &mut bool) -> u64 {
    let mut escaped = u64::from(*is_escaped);
    if backslashes == 0 {
        *is_escaped = false;
        return escaped;
    }
    let mut rest = backslashes & !escaped;
    *is_escaped = false;
    while rest != 0 {
        let backslash = rest & rest.wrapping_neg();
        let next = backslash << 1;
        *is_escaped = next == 0;
        escaped |= next;
        rest &= !(backslash | next);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(bytes: &[u8; BLOCK_BYTES]) -> Block {
        let block = dispatch!(Level::new(), simd => Block::of(simd, bytes));
        // The same with the vectors of every processor.
        assert_eq!(dispatch!(Level::baseline(), simd => Block::of(simd, bytes)), block);
        block
    }

    fn mask(bytes: &[u8], is: impl Fn(u8) -> bool) -> u64 {
        bytes.iter().enumerate().map(|(idx, byte)| u64::from(is(*byte)) << idx).sum()
    }

    proptest! {
        #[test]
        fn masks_mark_each_byte(bytes: [[u8; 32]; 2]) {
            let bytes: [u8; BLOCK_BYTES] = bytes.concat().try_into().unwrap();
            prop_assert_eq!(block(&bytes), Block {
                quotes: mask(&bytes, |byte| byte == b'"'),
                backslashes: mask(&bytes, |byte| byte == b'\\'),
                opens: mask(&bytes, |byte| matches!(byte, b'{' | b'[')),
                closes: mask(&bytes, |byte| matches!(byte, b'}' | b']')),
            });
        }

        #[test]
        fn ascii_is_told_from_other_text(
            mut bytes in proptest::collection::vec(0_u8..0x80, 0..200),
            other in proptest::option::of((any::<prop::sample::Index>(), 0x80_u8..)),
        ) {
            if let Some((at, other)) = other
                && !bytes.is_empty()
            {
                let at = at.index(bytes.len());
                bytes[at] = other;
            }
            prop_assert_eq!(is_ascii(&bytes), bytes.is_ascii());
        }

        #[test]
        fn a_string_stops_at_the_first_quote_or_backslash(
            bytes in proptest::collection::vec(prop_oneof![40 => Just(b'x'), 1 => Just(b'"'), 1 => Just(b'\\')], 0..200),
        ) {
            let stop = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\'));
            prop_assert_eq!(string_stop(&bytes), stop);
        }

        #[test]
        fn escapes_agree_with_a_walk(
            words in proptest::collection::vec(prop_oneof![any::<u64>(), Just(u64::MAX), Just(1 << 63)], 1..4),
        ) {
            let (mut carried, mut walked) = (false, false);
            for word in words {
                let mut expected = 0;
                for bit in 0..64 {
                    let is_escaped = std::mem::take(&mut walked);
                    expected |= u64::from(is_escaped) << bit;
                    walked = !is_escaped && word >> bit & 1 == 1;
                }
                prop_assert_eq!(escaped(word, &mut carried), expected);
            }
            prop_assert_eq!(carried, walked);
        }
    }

    #[test]
    fn every_byte_is_classified() {
        for byte in 0..=u8::MAX {
            let block = block(&[byte; BLOCK_BYTES]);
            let all = |is: bool| if is { u64::MAX } else { 0 };
            assert_eq!(block.quotes, all(byte == b'"'), "{byte}");
            assert_eq!(block.backslashes, all(byte == b'\\'), "{byte}");
            assert_eq!(block.opens, all(matches!(byte, b'{' | b'[')), "{byte}");
            assert_eq!(block.closes, all(matches!(byte, b'}' | b']')), "{byte}");
        }
        assert_eq!(parity(0b0100_0010), 0b0011_1110);
    }
}
