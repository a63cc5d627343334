//! Patterns over sorts of characters instead of bytes of UTF-8.
//!
//! # Theory
//!
//! The engine matches bytes. A class such as `\pL` takes more than a thousand states there, and
//! each repetition takes them again: `\pL{200}` is 16 MiB, a host name with international letters
//! is more. But a pattern tells few sorts of characters apart. An alphabet gives each sort that is
//! not ASCII one byte above 127, and ASCII stays as it is. The pattern is rewritten to match these
//! bytes, one for each character, and a text is translated before it is matched. What looks at
//! ASCII (`$` with `m`, `\b`) needs no translation, and texts of ASCII need none.

#[cfg(test)]
mod tests;

use regex_syntax::hir::{Capture, Class, ClassBytes, ClassBytesRange, Hir, HirKind, Repetition};
use std::borrow::Cow;
use std::collections::HashMap;

/// The most different classes of a pattern, ASCII left aside: one bit of a [`Sort`] each.
const CLASSES_MAX: usize = u64::BITS as usize;
/// The byte of the first sort.
const FIRST_BYTE: u8 = 0x80;
/// The first character that is not ASCII.
const FIRST: u32 = 0x80;

/// Which classes of the pattern a character is in, a bit for each.
type Sort = u64;
/// The ranges of a class, first and last, without ASCII.
type Ranges = Box<[(u32, u32)]>;

/// Where ranges of characters of one sort begin, and the sort's byte. Ascending, from [`FIRST`].
type Starts = Box<[(u32, u8)]>;

/// The sorts of characters that a pattern tells apart.
#[derive(Debug)]
pub(super) struct Alphabet {
    starts: Starts,
    /// The ranges of all classes that it was made from.
    n_ranges: usize,
}

impl Alphabet {
    /// A pattern rewritten for its alphabet. `None` if it has too many classes or sorts, or looks
    /// at more than characters and ASCII.
    pub(super) fn rewrite(pattern: &Hir) -> Option<(Self, Hir)> {
        if pattern.properties().look_set().contains_word_unicode() {
            return None;
        }
        let (mut classes, mut n_ranges) = (HashMap::new(), 0);
        collect(pattern, &mut classes, &mut n_ranges)?;
        let (starts, sorts) = starts(&classes)?;
        let alphabet = Self { starts, n_ranges };
        Some((alphabet, rewritten(pattern, &classes, &sorts)?))
    }

    /// A text as the rewritten pattern matches it: one byte for each character.
    pub(super) fn translate<'t>(&self, text: &'t str) -> Cow<'t, [u8]> {
        if text.is_ascii() {
            return Cow::Borrowed(text.as_bytes());
        }
        Cow::Owned(text.chars().map(|character| self.byte(character)).collect())
    }

    fn byte(&self, character: char) -> u8 {
        match u8::try_from(character) {
            Ok(ascii) if ascii.is_ascii() => ascii,
            _ => {
                let after = self.starts.partition_point(|(first, _)| *first <= character.into());
                // The first range begins with the first character that is not ASCII.
                self.starts[after - 1].1
            }
        }
    }

    /// The bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.starts)
    }

    /// How many ranges of characters it was made from.
    pub(super) fn n_ranges(&self) -> usize {
        self.n_ranges
    }
}

/// How many ranges of characters beyond ASCII a pattern has, each as often as it is repeated.
pub(super) fn n_ranges(pattern: &Hir) -> u64 {
    match pattern.kind() {
        HirKind::Class(class) => beyond_ascii(class).map_or(0, |ranges| ranges.len() as u64),
        HirKind::Repetition(Repetition { min, max, sub, .. }) => {
            let times = max.unwrap_or(*min).max(1);
            n_ranges(sub).saturating_mul(times.into())
        }
        kind => kind.subs().iter().map(n_ranges).fold(0, u64::saturating_add),
    }
}

/// The ranges of an alphabet, and its sorts in the order of their bytes: 128 at most. n·log n in
/// the ranges.
fn starts(classes: &HashMap<Ranges, usize>) -> Option<(Starts, Vec<Sort>)> {
    let mut changes: Vec<(u32, Sort)> = classes
        .iter()
        .flat_map(|(ranges, class)| ranges.iter().map(move |range| (range, 1 << class)))
        .flat_map(|(&(first, last), bit)| [(first, bit), (last + 1, bit)])
        .collect();
    changes.push((FIRST, 0));
    changes.sort_unstable();
    let mut bytes = HashMap::new();
    let mut sorts = Vec::new();
    let mut starts: Vec<(u32, u8)> = Vec::new();
    let mut sort: Sort = 0;
    for at_one_place in changes.chunk_by(|a, b| a.0 == b.0) {
        // Ranges of a class neither overlap nor touch: a bit changes once at a place.
        sort = at_one_place.iter().fold(sort, |sort, (_, bit)| sort ^ bit);
        let byte = match bytes.get(&sort) {
            Some(byte) => *byte,
            None => {
                let byte = FIRST_BYTE.checked_add(u8::try_from(sorts.len()).ok()?)?;
                sorts.push(sort);
                bytes.insert(sort, byte);
                byte
            }
        };
        starts.push((at_one_place[0].0, byte));
    }
    Some((starts.into(), sorts))
}

/// Numbers the classes of a pattern, and counts the ranges that this goes through. `None` beyond
/// [`CLASSES_MAX`].
fn collect(
    pattern: &Hir,
    classes: &mut HashMap<Ranges, usize>,
    n_ranges: &mut usize,
) -> Option<()> {
    let mut note = |ranges: Ranges| {
        *n_ranges += ranges.len();
        let next = classes.len();
        classes.entry(ranges).or_insert(next);
        (classes.len() <= CLASSES_MAX).then_some(())
    };
    match pattern.kind() {
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).ok()?;
            text.chars().filter(|character| !character.is_ascii()).try_for_each(|c| note(single(c)))
        }
        HirKind::Class(class) => note(beyond_ascii(class)?),
        kind => kind.subs().iter().try_for_each(|part| collect(part, classes, n_ranges)),
    }
}

fn single(character: char) -> Ranges {
    [(character.into(), character.into())].into()
}

fn beyond_ascii(class: &Class) -> Option<Ranges> {
    match class {
        Class::Unicode(class) => Some(
            class
                .iter()
                .map(|range| (u32::from(range.start()).max(FIRST), range.end().into()))
                .filter(|(first, last)| first <= last)
                .collect(),
        ),
        Class::Bytes(class) => class.is_ascii().then(Ranges::default),
    }
}

fn rewritten(pattern: &Hir, classes: &HashMap<Ranges, usize>, sorts: &[Sort]) -> Option<Hir> {
    let again = |part: &Hir| rewritten(part, classes, sorts);
    let bytes_of = |ranges: &Ranges| {
        let bit: Sort = 1 << classes.get(ranges)?;
        let bytes = (FIRST_BYTE..=u8::MAX).zip(sorts);
        Some(bytes.filter(move |(_, sort)| **sort & bit != 0).map(|(byte, _)| byte))
    };
    Some(match pattern.kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Look(look) => Hir::look(*look),
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).ok()?;
            let byte = |character: char| match u8::try_from(character) {
                Ok(ascii) if ascii.is_ascii() => Some(ascii),
                _ => bytes_of(&single(character))?.next(),
            };
            Hir::literal(text.chars().map(byte).collect::<Option<Vec<u8>>>()?)
        }
        HirKind::Class(class) => {
            let ascii: Vec<ClassBytesRange> = match class {
                Class::Unicode(class) => class
                    .iter()
                    .filter_map(|range| {
                        let first = u8::try_from(range.start()).ok().filter(u8::is_ascii)?;
                        let last = u8::try_from(range.end()).unwrap_or(u8::MAX).min(0x7f);
                        Some(ClassBytesRange::new(first, last))
                    })
                    .collect(),
                Class::Bytes(class) => class.ranges().to_vec(),
            };
            let others = bytes_of(&beyond_ascii(class)?)?;
            let others = others.map(|byte| ClassBytesRange::new(byte, byte));
            Hir::class(Class::Bytes(ClassBytes::new(ascii.into_iter().chain(others))))
        }
        HirKind::Repetition(Repetition { min, max, greedy, sub }) => {
            let sub = Box::new(again(sub)?);
            Hir::repetition(Repetition { min: *min, max: *max, greedy: *greedy, sub })
        }
        HirKind::Capture(Capture { index, name, sub }) => {
            let sub = Box::new(again(sub)?);
            Hir::capture(Capture { index: *index, name: name.clone(), sub })
        }
        HirKind::Concat(parts) => Hir::concat(parts.iter().map(again).collect::<Option<_>>()?),
        HirKind::Alternation(parts) => {
            Hir::alternation(parts.iter().map(again).collect::<Option<_>>()?)
        }
    })
}
