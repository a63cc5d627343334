//! The message of Go's JSON scanner for the first error of a text.

use std::ops::Range;

/// The sentence of Go's decoder about the first fault, `None` when it finds none.
pub(super) fn go_error(text: &[u8], depth_max: usize) -> Option<String> {
    let mut scanner = Scanner { text, at: 0, depth_max };
    scanner.document().err().map(|fault| match fault {
        Fault::End => "unexpected end of JSON input".to_owned(),
        Fault::Depth => "exceeded max depth".to_owned(),
        Fault::At(at, context) => {
            format!("invalid character {} {context}", quote(text[at]))
        }
        Fault::Blank(context) => format!("invalid character {} {context}", quote(b' ')),
    })
}

/// A JSON text whose escapes of half a surrogate pair are those of U+FFFD; none if it has no such
/// escape.
pub(super) fn without_lone_surrogates(text: &str) -> Option<String> {
    let unit = |at: usize| {
        let digits = text.get(at..)?.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut mended = String::new();
    let (mut taken, mut at) = (0, 0);
    while let Some(offset) = text.get(at..).and_then(|rest| rest.find('\\')) {
        at += offset;
        let is_low = |unit: u16| (0xdc00..0xe000).contains(&unit);
        match unit(at) {
            Some(0xd800..0xdc00) if unit(at + 6).is_some_and(is_low) => at += 12,
            Some(0xd800..0xe000) => {
                mended.push_str(&text[taken..at]);
                mended.push_str("\\ufffd");
                at += 6;
                taken = at;
            }
            _ => at += 2,
        }
    }
    (taken > 0).then(|| mended + &text[taken..])
}

/// Whether a JSON text has an escape of half a surrogate pair.
pub(super) fn has_lone_surrogates(text: &str) -> bool {
    without_lone_surrogates(text).is_some()
}

/// The first number of a JSON text that is beyond `float64`.
pub(super) fn number_beyond_float(text: &str) -> Option<&str> {
    numbers_beyond_float(text).next().map(|place| &text[place])
}

/// A JSON text whose numbers beyond `float64` are its largest one; none if it has no such number.
pub(super) fn within_float(text: &str) -> Option<String> {
    let mut within = String::new();
    let mut taken = 0;
    for place in numbers_beyond_float(text) {
        let sign = if text[place.clone()].starts_with('-') { "-" } else { "" };
        within.push_str(&text[taken..place.start]);
        within.push_str(sign);
        within.push_str("1.7976931348623157e308");
        taken = place.end;
    }
    (taken > 0).then(|| within + &text[taken..])
}

/// Where the numbers of a JSON text are that are beyond `float64`.
fn numbers_beyond_float(text: &str) -> impl Iterator<Item = Range<usize>> {
    let (mut at, mut in_text) = (0, false);
    let bytes = text.as_bytes();
    std::iter::from_fn(move || {
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'"' => in_text = !in_text,
                b'\\' => at += 1,
                b'-' | b'0'..=b'9' if !in_text => {
                    let rest = &text[at..];
                    let is_of_number = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
                    let end = at + rest.find(|c| !is_of_number(c)).unwrap_or(rest.len());
                    let place = at..end;
                    at = end;
                    if text[place.clone()].parse::<f64>().is_ok_and(f64::is_infinite) {
                        return Some(place);
                    }
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        None
    })
}

enum Fault {
    End,
    Depth,
    /** The byte at an offset does not fit the context. */
    At(usize, String),
    /** A blank at the end does not. */
    Blank(String),
}
type Scan = Result<(), Fault>;

/// A byte as Go's scanner shows it: as a rune literal, bytes beyond ASCII as Latin-1.
fn quote(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        0x07 => r"'\a'".to_owned(),
        0x08 => r"'\b'".to_owned(),
        0x0c => r"'\f'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        0x0b => r"'\v'".to_owned(),
        0..0x20 | 0x7f => format!(r"'\x{byte:02x}'"),
        0x80..0xa0 => format!(r"'\u{byte:04x}'"),
        0xa0 => r"'\u00a0'".to_owned(),
        0xad => r"'\u00ad'".to_owned(),
        _ => format!("'{}'", char::from(byte)),
    }
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    depth_max: usize,
}
impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }
    fn fault(&self, context: &str) -> Fault {
        if self.at < self.text.len() { Fault::At(self.at, context.to_owned()) } else { Fault::End }
    }
    /// The same inside of a word, which Go ends with a blank.
    fn fault_in_word(&self, context: &str) -> Fault {
        match self.fault(context) {
            Fault::End => Fault::Blank(context.to_owned()),
            fault => fault,
        }
    }
    fn document(&mut self) -> Scan {
        self.value(0)?;
        self.skip_space();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.fault("after top-level value")),
        }
    }
    fn value(&mut self, depth: usize) -> Scan {
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => self.string(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.fault("looking for beginning of value")),
        }
    }
    fn object(&mut self, depth: usize) -> Scan {
        if depth >= self.depth_max {
            return Err(Fault::Depth);
        }
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.fault("looking for beginning of object key string"));
            }
            self.string()?;
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.fault("after object key"));
            }
            self.at += 1;
            self.value(depth)?;
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.fault("after object key:value pair")),
            }
        }
    }
    fn array(&mut self, depth: usize) -> Scan {
        if depth >= self.depth_max {
            return Err(Fault::Depth);
        }
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth)?;
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.fault("after array element")),
            }
        }
    }
    fn string(&mut self) -> Scan {
        self.at += 1;
        loop {
            match self.peek() {
                None => return Err(Fault::End),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => {
                            self.at += 1;
                        }
                        Some(b'u') => {
                            self.at += 1;
                            for _ in 0..4 {
                                if !self.peek().is_some_and(|b| b.is_ascii_hexdigit()) {
                                    return Err(
                                        self.fault_in_word("in \\u hexadecimal character escape")
                                    );
                                }
                                self.at += 1;
                            }
                        }
                        _ => return Err(self.fault_in_word("in string escape code")),
                    }
                }
                Some(0..0x20) => return Err(self.fault("in string literal")),
                Some(_) => self.at += 1,
            }
        }
    }
    fn literal(&mut self, word: &str) -> Scan {
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                let context = format!("in literal {word} (expecting {})", quote(expected));
                return Err(self.fault_in_word(&context));
            }
            self.at += 1;
        }
        Ok(())
    }
    fn digits(&mut self, context: &str) -> Scan {
        if !self.peek().is_some_and(|b| b.is_ascii_digit()) {
            return Err(self.fault_in_word(context));
        }
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }
    fn number(&mut self) -> Scan {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits("in numeric literal")?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        Ok(())
    }
}
