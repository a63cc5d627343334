//! The lengths of the arrays of a text, before anything is built from them.
use super::DEPTH_MAX;
use super::block::{BLOCK_BYTES, escaped, parity};
use wide::u8x16;

/// The number of elements of every array of a JSON text, in the order in which the arrays begin.
///
/// For a decoder that allocates each list once with the exact size: JSON shows a list's length only
/// at its end, and lists that grow while they are read have unused capacity. One pass, without
/// validation. For a text that is not JSON, or nests deeper than 128, the lengths are wrong and end
/// where the scan gave up: use them as hints.
pub fn array_lengths(json: &[u8]) -> Vec<u32> {
    let mut walk = Walk::default();
    let (mut in_string, mut is_escaped) = (0_u64, false);
    let (blocks, rest) = json.as_chunks::<BLOCK_BYTES>();
    let mut last = [b' '; BLOCK_BYTES];
    last[..rest.len()].copy_from_slice(rest);
    for (block, start) in blocks.iter().chain([&last]).zip((0..).step_by(BLOCK_BYTES)) {
        let masks = Masks::of(block);
        let quotes = masks.quotes & !escaped(masks.backslashes, &mut is_escaped);
        let strings = parity(quotes) ^ in_string;
        in_string = 0_u64.wrapping_sub(strings >> 63);
        let mut found = masks.structure & !strings;
        while found != 0 {
            let at = found.trailing_zeros() as usize;
            found &= found - 1;
            if !walk.step(block[at], start + at, json) {
                return walk.lengths;
            }
        }
    }
    walk.lengths
}

/// The positions of relevant bytes in a block.
struct Masks {
    quotes: u64,
    backslashes: u64,
    /// Brackets and commas.
    structure: u64,
}

impl Masks {
    #[inline(always)]
    fn of(bytes: &[u8; BLOCK_BYTES]) -> Self {
        let (lanes, _) = bytes.as_chunks::<16>();
        let mut masks = Self { quotes: 0, backslashes: 0, structure: 0 };
        for (idx, lane) in lanes.iter().enumerate() {
            let lane = u8x16::new(*lane);
            // With the bit set in which the two kinds of brackets differ, each side becomes one
            // letter.
            let bracket = lane | u8x16::splat(0x20);
            let structure = bracket.simd_eq(u8x16::splat(b'{'))
                | bracket.simd_eq(u8x16::splat(b'}'))
                | lane.simd_eq(u8x16::splat(b','));
            let bits = |found: u8x16| u64::from(found.to_bitmask()) << (idx * 16);
            masks.quotes |= bits(lane.simd_eq(u8x16::splat(b'"')));
            masks.backslashes |= bits(lane.simd_eq(u8x16::splat(b'\\')));
            masks.structure |= bits(structure);
        }
        masks
    }
}

/// Marks an object among the open brackets.
const OBJECT: u32 = u32::MAX;

#[derive(Default)]
struct Walk {
    lengths: Vec<u32>,
    /// For each open bracket, the index of its array, or [`OBJECT`].
    open: Vec<u32>,
    /// Position after the last opening bracket, as long as only white space follows it.
    fresh: Option<usize>,
}

impl Walk {
    /// Processes one bracket or comma; returns whether to continue.
    #[inline(always)]
    fn step(&mut self, byte: u8, at: usize, json: &[u8]) -> bool {
        let fresh = self.fresh.take();
        match byte {
            b'[' | b'{' => {
                if self.open.len() >= DEPTH_MAX as usize {
                    return false;
                }
                if byte == b'[' {
                    let Ok(array) = u32::try_from(self.lengths.len()) else { return false };
                    self.open.push(array);
                    self.lengths.push(0);
                    self.fresh = Some(at + 1);
                } else {
                    self.open.push(OBJECT);
                }
            }
            b',' => {
                if let Some(length) = self.innermost() {
                    *length = length.saturating_add(1);
                }
            }
            _ => {
                let is_empty = fresh.is_some_and(|from| json[from..at].trim_ascii().is_empty());
                if !is_empty && let Some(length) = self.innermost() {
                    *length = length.saturating_add(1);
                }
                return self.open.pop().is_some();
            }
        }
        true
    }

    /// The current length of the innermost open bracket, if it is an array.
    fn innermost(&mut self) -> Option<&mut u32> {
        let array = *self.open.last()?;
        self.lengths.get_mut(usize::try_from(array).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn walked(value: &Value, lengths: &mut Vec<u32>) {
        match value {
            Value::Array(elements) => {
                lengths.push(u32::try_from(elements.len()).unwrap());
                elements.iter().for_each(|element| walked(element, lengths));
            }
            Value::Object(members) => members.values().for_each(|value| walked(value, lengths)),
            _ => {}
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            r#"[ -~"\\\[\]{},]{0,40}"#.prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 64, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::hash_map(r#"[a-c"\\,\[]{0,4}"#, inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn lengths_agree_with_a_tree(value in json(), is_pretty: bool) {
            let text = if is_pretty {
                serde_json::to_vec_pretty(&value)
            } else {
                serde_json::to_vec(&value)
            };
            let mut expected = Vec::new();
            walked(&value, &mut expected);
            prop_assert_eq!(array_lengths(&text.unwrap()), expected);
        }

        #[test]
        fn any_bytes_terminate(bytes in prop::collection::vec(
            prop_oneof![prop::sample::select(&b"[]{},\"\\ "[..]), any::<u8>()],
            0..300,
        )) {
            prop_assert!(array_lengths(&bytes).len() <= bytes.len());
        }
    }

    #[test]
    fn empty_arrays_have_no_elements_however_they_are_written() {
        assert_eq!(array_lengths(b"[[], [ \n ], [[]], [{}], [null]]"), [5, 0, 0, 1, 0, 1, 1]);
    }
}
