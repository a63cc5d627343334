//! Where a chunked body ends (RFC 9112, section 7.1).

/// Maximum bytes of the lines with sizes, and of trailers, in a row: more than hyper takes.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// The position in a chunked body.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    part: Part,
    /// Bytes of the present line, or of all trailers.
    n_line_bytes: usize,
}

/// It is no chunked body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

#[derive(Debug, Clone, Copy)]
enum Part {
    /// A line with a size; the size so far.
    Size { size: u64, is_over: bool, has_digits: bool },
    /// Data, and the line break after it.
    Data(u64),
    /// The line break after data.
    DataEnd,
    /// A line of a trailer, or the empty line at the end. Whether it is empty so far.
    Trailer { is_empty: bool },
}

impl Default for Part {
    fn default() -> Self {
        Self::Size { size: 0, is_over: false, has_digits: false }
    }
}

impl Chunks {
    /// How many of these bytes belong to the body, and whether it ends there.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<(usize, bool), Malformed> {
        let mut at = 0;
        while let Some(byte) = bytes.get(at).copied() {
            if let Part::Data(left) = self.part {
                let n_here = bytes.len() - at;
                let n = usize::try_from(left).unwrap_or(usize::MAX).min(n_here);
                at += n;
                let left = left - n as u64;
                self.part = if left == 0 { Part::DataEnd } else { Part::Data(left) };
                continue;
            }
            at += 1;
            self.n_line_bytes += 1;
            if self.n_line_bytes > LINE_BYTES_MAX {
                return Err(Malformed);
            }
            match (self.part, byte) {
                (Part::Size { has_digits: false, .. }, b'\n') => return Err(Malformed),
                (Part::Size { size, .. }, b'\n') => {
                    self.n_line_bytes = 0;
                    self.part = match size {
                        0 => Part::Trailer { is_empty: true },
                        size => Part::Data(size),
                    };
                }
                (Part::Size { size, is_over: false, .. }, digit) if digit.is_ascii_hexdigit() => {
                    let digit = u64::from(char::from(digit).to_digit(16).unwrap_or(0));
                    let size = size.checked_mul(16).ok_or(Malformed)? + digit;
                    self.part = Part::Size { size, is_over: false, has_digits: true };
                }
                // An extension, or the line's end.
                (Part::Size { size, has_digits, .. }, _) => {
                    self.part = Part::Size { size, is_over: true, has_digits };
                }
                (Part::DataEnd, b'\r') => {}
                (Part::DataEnd, b'\n') => (self.part, self.n_line_bytes) = (Part::default(), 0),
                (Part::Trailer { is_empty: true }, b'\n') => return Ok((at, true)),
                (Part::Trailer { is_empty: true }, b'\r') => {}
                (Part::Trailer { .. }, byte) => {
                    self.part = Part::Trailer { is_empty: byte == b'\n' };
                }
                (Part::Data(_) | Part::DataEnd, _) => return Err(Malformed),
            }
        }
        Ok((at, false))
    }
}
