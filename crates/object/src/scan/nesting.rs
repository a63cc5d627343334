//! Finds the end of an object or array, a block at a time.
use super::DEPTH_MAX;
use super::block::{BLOCK_BYTES, Block, escaped, parity};

/// The scan state between the first bracket of an object or array and its closing bracket. It may
/// stop after any byte and continue with the bytes that follow, so that each byte of a value that
/// arrives in pieces is read once.
///
/// # Theory
///
/// The parity of quotes separates strings from the rest of a block, and only brackets outside
/// strings are processed. The open brackets are a stack of bits, the innermost lowest, with one for
/// a brace. A block that may contain an error, or in which the stack outgrows its word, is
/// processed again byte by byte. The byte-wise walk is authoritative; the blocks are its fast form.
#[derive(Debug, Clone, Default)]
pub(super) struct Nesting {
    /// Number of open brackets.
    depth: u32,
    /// Their kinds.
    kinds: u128,
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

/// Maximum nesting for which a block is tried: a word has room for one more bit, which marks the
/// end of the stack.
const WORD_DEPTH_MAX: u32 = 62;

impl Nesting {
    /// Continues with more bytes. The first byte must be the value's first bracket. Returns the
    /// number of bytes up to the value's end; `None` if it does not end in these.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        let mut from = 0;
        loop {
            match self.run(bytes, from) {
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
    fn run(&mut self, bytes: &[u8], mut at: usize) -> Stop {
        if self.depth > WORD_DEPTH_MAX {
            return if at < bytes.len() { Stop::Block(at) } else { Stop::Bytes };
        }
        let mut stack = 1 << self.depth | self.kinds as u64;
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
            let block = Block::of(block_bytes);
            let mut escapes_next = is_escaped;
            let escaped = escaped(block.backslashes, &mut escapes_next);
            let strings = parity(block.quotes & !escaped) ^ in_string;

            let (mut walked, mut overgrown) = (stack, 0);
            let mut is_bad = block.backslashes & !strings;
            let mut brackets = (block.opens | block.closes) & !strings;
            let mut end = None;
            while brackets != 0 {
                let idx = brackets.trailing_zeros() as usize;
                brackets &= brackets - 1;
                let kind = u64::from(block_bytes[idx] >> 5 & 1);
                let is_open = block.opens >> idx & 1;
                is_bad |= (1 - is_open) & (walked ^ kind);
                // Both results are computed, because the branch is unpredictable and a
                // misprediction costs more.
                let (pushed, popped) = (walked << 1 | kind, walked >> 1);
                walked = if is_open == 1 { pushed } else { popped };
                overgrown |= walked >> 63;
                if walked == 1 {
                    end = Some(at + idx + 1);
                    break;
                }
            }
            if is_bad | overgrown != 0 {
                break Stop::Block(at);
            }
            if let Some(end) = end {
                return Stop::End(end);
            }
            stack = walked;
            in_string = if strings >> 63 == 1 { u64::MAX } else { 0 };
            is_escaped = if len == BLOCK_BYTES { escapes_next } else { escaped >> len & 1 == 1 };
            at += len;
        };
        self.depth = 63 - stack.leading_zeros();
        self.kinds = u128::from(stack ^ 1 << self.depth);
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
                    self.depth += 1;
                    self.kinds = self.kinds << 1 | u128::from(*byte == b'{');
                }
                b'}' | b']' => {
                    if (self.kinds & 1 == 1) != (*byte == b'}') {
                        return fail("brackets that do not match");
                    }
                    self.depth -= 1;
                    self.kinds >>= 1;
                    if self.depth == 0 {
                        return Ok(Some(idx + 1));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }
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
