//! Finds the end of an object or array, a block at a time.
use super::DEPTH_MAX;
use super::block::{BLOCK_BYTES, Block, escaped, parity};
use fearless_simd::{Level, Simd, dispatch};

/// The scan state between the first bracket of an object or array and its closing bracket. It may
/// stop after any byte and continue with the bytes that follow, so that each byte of a value that
/// arrives in pieces is read once.
///
/// # Theory
///
/// The parity of quotes separates strings from the rest of a block, and only brackets outside
/// strings count. In a block with fewer closing brackets than are open, the value cannot end, so
/// they are counted and not visited: no branch depends on the text. Both kinds of brackets count
/// alike; only the value's last bracket must be of its first one's kind. `[{]}` is found by whoever
/// decodes the value, like a misspelt `true`. A block that may contain an error is processed again
/// byte by byte. The byte-wise walk is authoritative; the blocks are its fast form.
#[derive(Debug, Clone, Default)]
pub(super) struct Nesting {
    /// Number of open brackets.
    depth: u32,
    /// The bracket that ends the value.
    last: u8,
    in_string: bool,
    /// Whether the next byte is escaped.
    is_escaped: bool,
}

/// An error, and the number of bytes up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) what: &'static str,
}

/// Why a run over blocks stopped.
enum Stop {
    /// The value ends before this byte.
    End(usize),
    /// No bytes remain.
    Bytes,
    /// The block at this byte must be processed byte by byte.
    Block(usize),
}

impl Nesting {
    /// Continues with more bytes. The first byte must be the value's first bracket. Returns the
    /// number of bytes up to the value's end; `None` if it does not end in these.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        let mut from = 0;
        if self.depth == 0 {
            from = bytes.len().min(1);
            self.walk(&bytes[..from], 0)?;
        }
        loop {
            match dispatch!(Level::new(), simd => self.run(simd, bytes, from)) {
                Stop::End(at) => return Ok(Some(at)),
                Stop::Bytes => return Ok(None),
                Stop::Block(at) => {
                    from = bytes.len().min(at + BLOCK_BYTES);
                    if let Some(at) = self.walk(&bytes[..from], at)? {
                        return Ok(Some(at));
                    }
                }
            }
        }
    }
    /// Whether the current position is in a string.
    pub(super) fn in_string(&self) -> bool {
        self.in_string
    }

    /// Continues block by block from `at`. When it stops, the state is that of the block's first
    /// byte.
    #[inline(always)]
    fn run<S: Simd>(&mut self, simd: S, bytes: &[u8], mut at: usize) -> Stop {
        let mut depth = self.depth;
        let mut in_string = if self.in_string { u64::MAX } else { 0 };
        let mut is_escaped = self.is_escaped;
        // For the last, partial block.
        let mut padded = [b' '; BLOCK_BYTES];
        let stop = loop {
            let rest = &bytes[at..];
            let (block_bytes, len) = match rest.first_chunk::<BLOCK_BYTES>() {
                Some(block_bytes) => (block_bytes, BLOCK_BYTES),
                None if rest.is_empty() => break Stop::Bytes,
                None => {
                    padded[..rest.len()].copy_from_slice(rest);
                    (&padded, rest.len())
                }
            };
            let block = Block::of(simd, block_bytes);
            let mut escapes_next = is_escaped;
            let escaped = escaped(block.backslashes, &mut escapes_next);
            let strings = parity(block.quotes & !escaped) ^ in_string;
            let (opens, closes) = (block.opens & !strings, block.closes & !strings);
            let (n_opens, n_closes) = (opens.count_ones(), closes.count_ones());
            if block.backslashes & !strings != 0 || depth + n_opens > DEPTH_MAX {
                break Stop::Block(at);
            }
            if n_closes >= depth
                && let Some(idx) = end(depth, opens, closes)
            {
                if block_bytes[idx] != self.last {
                    break Stop::Block(at);
                }
                return Stop::End(at + idx + 1);
            }
            depth = depth + n_opens - n_closes;
            in_string = if strings >> 63 == 1 { u64::MAX } else { 0 };
            is_escaped = if len == BLOCK_BYTES { escapes_next } else { escaped >> len & 1 == 1 };
            at += len;
        };
        self.depth = depth;
        self.in_string = in_string != 0;
        self.is_escaped = is_escaped;
        stop
    }

    /// Continues byte by byte from `at`.
    fn walk(&mut self, bytes: &[u8], at: usize) -> Result<Option<usize>, Fault> {
        for (idx, byte) in bytes.iter().enumerate().skip(at) {
            let fail = |what| Err(Fault { at: idx + 1, what });
            if self.in_string {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'\\' => return fail("a backslash outside a string"),
                b'{' | b'[' => {
                    if self.depth == DEPTH_MAX {
                        return fail("nested too deep");
                    }
                    if self.depth == 0 {
                        self.last = if *byte == b'{' { b'}' } else { b']' };
                    }
                    self.depth += 1;
                }
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        if *byte != self.last {
                            return fail("brackets that do not match");
                        }
                        return Ok(Some(idx + 1));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

/// The closing bracket that ends the value, of a block with the given brackets; `None` if it does
/// not end there.
#[inline(always)]
fn end(depth: u32, opens: u64, mut closes: u64) -> Option<usize> {
    let mut n_closed = 0;
    while closes != 0 {
        let close = closes & closes.wrapping_neg();
        closes ^= close;
        n_closed += 1;
        if depth + (opens & (close - 1)).count_ones() == n_closed {
            return Some(close.trailing_zeros() as usize);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_strategy;
    use proptest::prelude::*;
    use serde_json::Value;

    /// The result of the walk alone.
    fn walked(bytes: &[u8]) -> Result<Option<usize>, Fault> {
        Nesting::default().walk(bytes, 0)
    }
    /// Bytes that start with a bracket and are mostly structural.
    fn noise() -> impl Strategy<Value = Vec<u8>> {
        let bytes = |wild: bool| {
            let quotes = if wild { "{[}]\"\\" } else { "{[}]" };
            let byte = prop_oneof![
                4 => proptest::sample::select(quotes.as_bytes().to_vec()),
                1 => Just(b' '),
                2 => proptest::sample::select(b"{}".to_vec()),
            ];
            (proptest::sample::select(b"{[".to_vec()), proptest::collection::vec(byte, 0..300))
                .prop_map(|(first, mut rest)| {
                    rest.insert(0, first);
                    rest
                })
        };
        prop_oneof![bytes(true), bytes(false)]
    }
    fn in_pieces(bytes: &[u8], mut cuts: Vec<usize>) -> Result<Option<usize>, Fault> {
        cuts.sort_unstable();
        cuts.push(bytes.len());
        let (mut nesting, mut from) = (Nesting::default(), 0);
        for to in cuts {
            match nesting.feed(&bytes[from..to]) {
                Ok(None) => from = to,
                Ok(Some(at)) => return Ok(Some(from + at)),
                Err(fault) => return Err(Fault { at: from + fault.at, ..fault }),
            }
        }
        Ok(None)
    }

    proptest! {
        #[test]
        fn blocks_agree_with_the_walk(bytes in noise(), cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..4)) {
            prop_assert_eq!(Nesting::default().feed(&bytes), walked(&bytes));
            let cuts = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
            prop_assert_eq!(in_pieces(&bytes, cuts), walked(&bytes));
        }

        #[test]
        fn value_ends_where_serde_json_ends_it(
            values in proptest::collection::vec(json_strategy::value(), 0..6),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            let mut text = serde_json::to_vec(&Value::from(values)).unwrap();
            let len = text.len();
            let cuts = cuts.iter().map(|cut| cut.index(len)).collect();
            text.extend_from_slice(b"]}\" and more");
            prop_assert_eq!(in_pieces(&text, cuts), Ok(Some(len)));
        }
    }

    #[test]
    fn every_depth_up_to_the_bound_is_accepted() {
        for depth in 1..=DEPTH_MAX as usize + 2 {
            for (open, close) in [("[", "]"), ("{", "}"), ("[{", "}]")] {
                let n_brackets = depth.div_ceil(open.len());
                let text = [open.repeat(n_brackets), close.repeat(n_brackets)].concat();
                let depth = n_brackets * open.len();
                let got = Nesting::default().feed(text.as_bytes());
                if depth <= DEPTH_MAX as usize {
                    assert_eq!(got, Ok(Some(text.len())), "{depth}");
                    for at in 0..text.len() {
                        let pieces = in_pieces(text.as_bytes(), vec![at]);
                        assert_eq!(pieces, Ok(Some(text.len())), "{depth}, cut at {at}");
                    }
                } else {
                    assert_eq!(got.unwrap_err().what, "nested too deep", "{depth}");
                }
            }
        }
    }
}
