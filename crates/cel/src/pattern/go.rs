//! Patterns in the syntax of Go's `regexp`, checked as Go checks them and rewritten for the `regex`
//! crate.
//!
//! Both descend from RE2. The parser here knows Go's syntax, its limits and its error texts. What
//! it writes depends on nothing around it: flags are written with every atom that they change,
//! groups capture nothing, classes of Perl are spelled out in ASCII, and whatever the `regex` crate
//! would read differently is escaped.

use super::class;
use std::fmt::Write as _;

/// The most copies that one repetition, and all that are nested in each other together, may make.
const REPEAT_MAX: u64 = 1_000;
/// The most instructions of a compiled expression: 128 MiB of 40 bytes.
const SIZE_MAX: u64 = (128 << 20) / 40;
/// The deepest nesting of an expression.
const HEIGHT_MAX: u32 = 1_000;
/// The most code points that the ranges of all classes may name: 128 MiB of 4 bytes.
const RUNES_MAX: usize = (128 << 20) / 4;

/// Why Go refuses a pattern; displays its sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {what}: `{shown}`")]
pub struct SyntaxError {
    what: &'static str,
    /// The part of the pattern that is at fault.
    shown: String,
}

/// A fault and where it is.
pub(super) fn fault(what: &'static str, shown: &str) -> SyntaxError {
    SyntaxError { what, shown: shown.to_owned() }
}

/// The flags that are set.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flags {
    pub(super) fold_case: bool,
    multi_line: bool,
    dot_newline: bool,
    /// Repetitions take as little as they can unless they are marked.
    ungreedy: bool,
}

/// An expression as far as Go's limits go.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// Instructions.
    size: u64,
    height: u32,
    /// The largest product of nested repetitions.
    copies: u64,
}

impl Extent {
    const ONE: Self = Self { size: 1, height: 1, copies: 1 };
    const NONE: Self = Self { size: 0, height: 0, copies: 1 };

    /// Several expressions beside each other.
    fn and(self, other: Self) -> Self {
        Self {
            size: self.size.saturating_add(other.size),
            height: self.height.max(other.height),
            copies: self.copies.max(other.copies),
        }
    }
}

/// The last expression that was read: what a repetition repeats.
#[derive(Debug, Clone, Copy)]
struct Atom {
    extent: Extent,
    /// Where it begins in the output.
    start: usize,
    /// It ends in a repetition: another one would be read as a part of it.
    repeated: bool,
}

/// A group that is open, or the whole expression.
#[derive(Debug)]
struct Group {
    /// The flags before it.
    flags: Flags,
    /// It is a capture, which counts.
    captures: bool,
    /// Where it begins in the output.
    start: usize,
    /// Finished alternatives, and how many.
    alternatives: (Extent, u64),
    /// Finished parts of this alternative, and how many.
    parts: (Extent, u64),
    last: Option<Atom>,
}

impl Group {
    fn new(flags: Flags, captures: bool, start: usize) -> Self {
        let none = (Extent::NONE, 0);
        Self { flags, captures, start, alternatives: none, parts: none, last: None }
    }

    fn finish_atom(&mut self) {
        if let Some(atom) = self.last.take() {
            self.parts = (self.parts.0.and(atom.extent), self.parts.1 + 1);
        }
    }

    fn finish_alternative(&mut self) {
        self.finish_atom();
        let (mut extent, n) = std::mem::replace(&mut self.parts, (Extent::NONE, 0));
        match n {
            0 => extent = Extent::ONE,
            1 => {}
            _ => extent.height += 1,
        }
        self.alternatives = (self.alternatives.0.and(extent), self.alternatives.1 + 1);
    }

    fn finish(mut self) -> Extent {
        self.finish_alternative();
        let (mut extent, n) = self.alternatives;
        if n > 1 {
            extent.size = extent.size.saturating_add(n - 1);
            extent.height += 1;
        }
        if self.captures {
            extent.size = extent.size.saturating_add(2);
            extent.height += 1;
        }
        extent
    }
}

/// Checks a pattern as Go would and rewrites it.
///
/// # Errors
/// Go's sentence about the first fault.
pub fn translate(pattern: &str) -> Result<String, SyntaxError> {
    let mut parser = Parser {
        whole: pattern,
        flags: Flags::default(),
        groups: vec![Group::new(Flags::default(), false, 0)],
        out: String::with_capacity(pattern.len() + 8),
        runes: 0,
        classes: class::Tables::default(),
    };
    parser.parse()?;
    Ok(parser.out)
}

struct Parser<'p> {
    whole: &'p str,
    flags: Flags,
    /// The whole expression and the groups that are open in it. Never empty.
    groups: Vec<Group>,
    out: String,
    /// Code points that classes name.
    runes: usize,
    classes: class::Tables,
}

impl<'p> Parser<'p> {
    fn parse(&mut self) -> Result<(), SyntaxError> {
        let mut rest = self.whole;
        // The text from the repetition before on, when that is what was read last.
        let mut last_repeat = "";
        while let Some(c) = rest.chars().next() {
            let mut repeat = "";
            rest = match c {
                '(' if rest.starts_with("(?") => self.perl_group(rest)?,
                '(' => {
                    self.open(self.flags, true);
                    &rest[1..]
                }
                '|' => {
                    self.group().finish_alternative();
                    self.out.push('|');
                    &rest[1..]
                }
                ')' => {
                    self.close()?;
                    &rest[1..]
                }
                '^' | '$' => {
                    self.flagged(self.flags.multi_line, 'm', c)?;
                    &rest[1..]
                }
                '.' => {
                    self.flagged(self.flags.dot_newline, 's', '.')?;
                    &rest[1..]
                }
                '[' => {
                    let start = self.out.len();
                    let fold = self.flags.fold_case;
                    self.out.push_str(if fold { "(?i:" } else { "" });
                    let (after, runes) = class::bracketed(rest, &mut self.out, &mut self.classes)?;
                    self.out.push_str(if fold { ")" } else { "" });
                    self.runes = self.runes.saturating_add(runes);
                    self.push(start)?;
                    after
                }
                '*' | '+' | '?' => {
                    repeat = rest;
                    let (min, max) = if c == '+' { (1, None) } else { (0, None) };
                    let max = if c == '?' { Some(1) } else { max };
                    self.repeat(Repeat { min, max, counted: false }, rest, &rest[1..], last_repeat)?
                }
                '{' => match repetition(rest) {
                    None => {
                        self.literal('{')?;
                        &rest[1..]
                    }
                    Some((min, max, after)) => {
                        let is_valid = min <= REPEAT_MAX && max.is_none_or(|max| max <= REPEAT_MAX);
                        if !is_valid || max.is_some_and(|max| min > max) {
                            let shown = &rest[..rest.len() - after.len()];
                            return Err(fault("invalid repeat count", shown));
                        }
                        repeat = rest;
                        self.repeat(Repeat { min, max, counted: true }, rest, after, last_repeat)?
                    }
                },
                '\\' => self.escape(rest)?,
                c => {
                    self.literal(c)?;
                    &rest[c.len_utf8()..]
                }
            };
            last_repeat = repeat;
        }
        if self.groups.len() > 1 {
            return Err(fault("missing closing )", self.whole));
        }
        let extent = self.groups.pop().map_or(Extent::ONE, Group::finish);
        self.hold(extent)
    }

    fn group(&mut self) -> &mut Group {
        if self.groups.is_empty() {
            self.groups.push(Group::new(self.flags, false, 0));
        }
        let last = self.groups.len() - 1;
        &mut self.groups[last]
    }

    /// Holds an expression to the limits.
    fn hold(&self, extent: Extent) -> Result<(), SyntaxError> {
        if extent.size > SIZE_MAX || self.runes > RUNES_MAX {
            return Err(fault("expression too large", self.whole));
        }
        if extent.height > HEIGHT_MAX {
            return Err(fault("expression nests too deeply", self.whole));
        }
        Ok(())
    }

    /// Takes what was written since `start` as an atom.
    fn push(&mut self, start: usize) -> Result<(), SyntaxError> {
        self.push_extent(start, Extent::ONE)
    }

    fn push_extent(&mut self, start: usize, extent: Extent) -> Result<(), SyntaxError> {
        let group = self.group();
        group.finish_atom();
        group.last = Some(Atom { extent, start, repeated: false });
        self.hold(extent)
    }

    /// An atom that a flag changes.
    fn flagged(&mut self, on: bool, flag: char, atom: char) -> Result<(), SyntaxError> {
        let start = self.out.len();
        if on {
            // A String takes every write.
            _ = write!(self.out, "(?{flag}:{atom})");
        } else {
            self.out.push(atom);
        }
        self.push(start)
    }

    fn literal(&mut self, c: char) -> Result<(), SyntaxError> {
        self.rune(u32::from(c))
    }

    /// A code point. Text holds no surrogates, so that they match nothing.
    fn rune(&mut self, rune: u32) -> Result<(), SyntaxError> {
        let start = self.out.len();
        match char::from_u32(rune) {
            None => self.out.push_str(class::NOTHING),
            Some(c) => {
                let fold = self.flags.fold_case && (c.is_alphabetic() || !c.is_ascii());
                self.out.push_str(if fold { "(?i:" } else { "" });
                if c.is_ascii_alphanumeric() || !(c.is_ascii() || c.is_whitespace()) {
                    self.out.push(c);
                } else {
                    _ = write!(self.out, r"\x{{{rune:x}}}");
                }
                self.out.push_str(if fold { ")" } else { "" });
            }
        }
        self.push(start)
    }

    fn open(&mut self, outer: Flags, captures: bool) {
        let start = self.out.len();
        self.group().finish_atom();
        self.out.push_str("(?:");
        self.groups.push(Group::new(outer, captures, start));
    }

    fn close(&mut self) -> Result<(), SyntaxError> {
        if self.groups.len() < 2 {
            return Err(fault("unexpected )", self.whole));
        }
        let Some(group) = self.groups.pop() else { return Ok(()) };
        self.out.push(')');
        self.flags = group.flags;
        let start = group.start;
        self.push_extent(start, group.finish())
    }

    /// `(?P<name>`, `(?<name>`, `(?flags)`, `(?flags:`.
    fn perl_group(&mut self, text: &'p str) -> Result<&'p str, SyntaxError> {
        let named = if text.len() > 4 && text.starts_with("(?P<") {
            Some(4)
        } else if text.len() > 3 && text.starts_with("(?<") {
            Some(3)
        } else {
            None
        };
        if let Some(begin) = named {
            let Some(end) = text.find('>') else {
                return Err(fault("invalid named capture", text));
            };
            let name = text.get(begin..end).unwrap_or_default();
            let is_valid =
                !name.is_empty() && name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric());
            if !is_valid {
                return Err(fault("invalid named capture", &text[..=end]));
            }
            self.open(self.flags, true);
            return Ok(&text[end + 1..]);
        }
        let mut flags = self.flags;
        let (mut on, mut saw_flag) = (true, false);
        for (at, c) in text.char_indices().skip(2) {
            let rest = &text[at + c.len_utf8()..];
            let invalid = || {
                let shown = &text[..text.len() - rest.len()];
                Err(fault("invalid or unsupported Perl syntax", shown))
            };
            match c {
                'i' => flags.fold_case = on,
                'm' => flags.multi_line = on,
                's' => flags.dot_newline = on,
                'U' => flags.ungreedy = on,
                '-' if on => {
                    (on, saw_flag) = (false, false);
                    continue;
                }
                ':' | ')' => {
                    if !on && !saw_flag {
                        return invalid();
                    }
                    if c == ':' {
                        self.open(self.flags, false);
                    }
                    self.flags = flags;
                    return Ok(rest);
                }
                _ => return invalid(),
            }
            saw_flag = true;
        }
        Err(fault("invalid or unsupported Perl syntax", text))
    }

    /// Repeats the last atom. `before` is the text from the operator on, `after` what follows it.
    fn repeat(
        &mut self,
        repeat: Repeat,
        before: &'p str,
        after: &'p str,
        last_repeat: &str,
    ) -> Result<&'p str, SyntaxError> {
        let operator = &before[..before.len() - after.len()];
        let marked = after.starts_with('?');
        let after = after.strip_prefix('?').unwrap_or(after);
        let shown = &before[..before.len() - after.len()];
        if !last_repeat.is_empty() {
            let shown = &last_repeat[..last_repeat.len() - after.len()];
            return Err(fault("invalid nested repetition operator", shown));
        }
        let Some(atom) = self.group().last.take() else {
            return Err(fault("missing argument to repetition operator", shown));
        };
        if atom.repeated {
            self.out.insert_str(atom.start, "(?:");
            self.out.push(')');
        }
        self.out.push_str(operator);
        if marked != self.flags.ungreedy {
            self.out.push('?');
        }
        let extent = repeat.extent(atom.extent);
        self.group().last = Some(Atom { extent, start: atom.start, repeated: true });
        self.hold(extent)?;
        let multiplies = repeat.counted && repeat.max.unwrap_or(repeat.min).max(repeat.min) >= 2;
        if multiplies && extent.copies > REPEAT_MAX {
            return Err(fault("invalid repeat count", shown));
        }
        Ok(after)
    }

    fn escape(&mut self, text: &'p str) -> Result<&'p str, SyntaxError> {
        let start = self.out.len();
        match text.as_bytes().get(1) {
            Some(b'A') => self.out.push_str(r"\A"),
            Some(b'z') => self.out.push_str(r"\z"),
            Some(b'b') => self.out.push_str(r"(?-u:\b)"),
            Some(b'B') => self.out.push_str(r"(?-u:\B)"),
            Some(b'C') => return Err(fault("invalid escape sequence", &text[..2])),
            Some(b'Q') => {
                let quoted = &text[2..];
                let (quoted, after) = quoted.split_once(r"\E").unwrap_or((quoted, ""));
                quoted.chars().try_for_each(|c| self.literal(c))?;
                return Ok(after);
            }
            Some(b'd' | b'D' | b's' | b'S' | b'w' | b'W' | b'p' | b'P') => {
                let fold = self.flags.fold_case;
                self.out.push_str(if fold { "(?i:" } else { "" });
                let (after, runes) = class::escaped(text, &mut self.out, &mut self.classes)?;
                self.out.push_str(if fold { ")" } else { "" });
                self.runes = self.runes.saturating_add(runes);
                self.push(start)?;
                return Ok(after);
            }
            _ => {
                let (rune, after) = class::rune_escape(text)?;
                self.rune(rune)?;
                return Ok(after);
            }
        }
        self.push(start)?;
        Ok(&text[2..])
    }
}

/// A repetition operator.
#[derive(Debug, Clone, Copy)]
struct Repeat {
    min: u64,
    max: Option<u64>,
    /// In braces.
    counted: bool,
}

impl Repeat {
    /// The operand of a repetition.
    fn extent(self, of: Extent) -> Extent {
        let Self { min, max, counted } = self;
        let size = match max {
            _ if !counted => of.size.saturating_add(2),
            None if min == 0 => of.size.saturating_add(2),
            None => min.saturating_mul(of.size).saturating_add(1),
            Some(max) => max.saturating_mul(of.size).saturating_add(max - min),
        };
        let copies = match max {
            _ if !counted => of.copies,
            Some(0) => 1,
            max => max.unwrap_or(min).max(1).saturating_mul(of.copies),
        };
        Extent { size: size.max(1), height: of.height.saturating_add(1), copies }
    }
}

/// `{n}`, `{n,}` or `{n,m}` and what follows; `None` for a brace that opens no repetition. Numbers
/// are cut off above the limit.
fn repetition(text: &str) -> Option<(u64, Option<u64>, &str)> {
    let (min, rest) = number(text.strip_prefix('{')?)?;
    let Some(rest) = rest.strip_prefix(',') else {
        return Some((min, Some(min), rest.strip_prefix('}')?));
    };
    if let Some(after) = rest.strip_prefix('}') {
        return Some((min, None, after));
    }
    let (max, rest) = number(rest)?;
    Some((min, Some(max), rest.strip_prefix('}')?))
}

/// A decimal number without leading zeros, and what follows.
fn number(text: &str) -> Option<(u64, &str)> {
    let n_digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(n_digits);
    if digits.is_empty() || digits.len() > 1 && digits.starts_with('0') {
        return None;
    }
    Some((digits.parse().unwrap_or(u64::MAX), rest))
}
