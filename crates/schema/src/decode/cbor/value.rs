//! From well-formed items to trees.

use super::super::budget::Budget;
use super::super::{DecodeError, number, scalar};
use super::Head;
use super::wire::{Kind, Reader, unacceptable};
use crate::node::Scalar;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ciborium_ll::Header;
use serde_json::{Map, Value};
use setpoint_object::field::quote;
use setpoint_object::time::Moment;
use std::borrow::Cow;
use std::collections::HashSet;

/// The tag of self-described CBOR.
const SELF_DESCRIBED: u64 = 55_799;
/// A date and time as text.
const TIME: u64 = 0;
/// Seconds since 1970.
const EPOCH: u64 = 1;

/// Why a value cannot be decoded.
pub(super) enum Fault {
    /// A value of a wrong type. It is reported with the member of the object that it is in.
    Type { found: Kind, wanted: Cow<'static, str>, note: String },
    /// The whole sentence.
    Text(DecodeError),
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self::Text(error)
    }
}

impl Fault {
    pub(super) fn wanted(found: Kind, wanted: impl Into<Cow<'static, str>>) -> Self {
        Self::Type { found, wanted: wanted.into(), note: String::new() }
    }

    /// The sentence. `place`: `struct field v1.Pod.spec`, `value`.
    pub(super) fn at(self, place: &str) -> DecodeError {
        match self {
            Self::Type { found, wanted, note } => DecodeError(format!(
                "cbor: cannot unmarshal {found} into Go {place} of type {wanted}{note}"
            )),
            Self::Text(error) => error,
        }
    }
}

/// The encoding that a tag asks for, should the bytes below it become text.
#[derive(Debug, Clone, Copy)]
pub(super) enum Later {
    Base64Url,
    Base64,
    Base16,
}

impl Later {
    fn of(tag: u64) -> Option<Self> {
        match tag {
            21 => Some(Self::Base64Url),
            22 => Some(Self::Base64),
            23 => Some(Self::Base16),
            _ => None,
        }
    }

    fn encode(self, bytes: &[u8]) -> String {
        match self {
            Self::Base64Url => URL_SAFE_NO_PAD.encode(bytes),
            Self::Base64 => STANDARD.encode(bytes),
            Self::Base16 => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

pub(super) fn object(reader: Reader<'_>) -> Result<Value, DecodeError> {
    let mut tree = Tree::new(reader);
    let done = tree.begin().and_then(|later| match tree.reader.kind()? {
        Kind::Map => tree.map(later),
        _ if tree.is_null()? => Ok(Value::Null),
        found => Err(Fault::wanted(found, "map[string]interface {}")),
    });
    done.map_err(|fault| fault.at("value"))
}

pub(super) fn head(reader: Reader<'_>) -> Result<Head, DecodeError> {
    const TYPE: &str = "v1.TypeMeta";
    let mut tree = Tree::new(reader);
    let mut head = Head::default();
    let done = tree.begin().and_then(|_| {
        if tree.is_null()? {
            return Ok(());
        }
        let found = tree.reader.kind()?;
        if found != Kind::Map {
            return Err(not_a_struct(found, TYPE.to_owned()));
        }
        let mut keys = Keys::default();
        let mut pairs = tree.pairs()?;
        while let Some(index) = pairs.next(&mut tree.reader) {
            let key = keys.add(&mut tree, index)?;
            let field = match &key {
                Key::Name(name) if name == "apiVersion" => &mut head.api_version,
                Key::Name(name) if name == "kind" => &mut head.kind,
                _ => {
                    tree.reader.skip()?;
                    continue;
                }
            };
            if tree.is_null()? {
                tree.reader.skip()?;
                continue;
            }
            let place = format!("struct field {TYPE}.{}", key.name());
            let text = tree.text(None).map_err(|fault| Fault::Text(fault.at(&place)))?;
            *field = text;
        }
        Ok(())
    });
    done.map_err(|fault: Fault| fault.at("value"))?;
    Ok(head)
}

/// A key of a struct.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Name(String),
    Number(i128),
}

impl Key {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Number(_) => "",
        }
    }
}

/// The keys of a struct so far.
#[derive(Default)]
pub(super) struct Keys(HashSet<Key>);

impl Keys {
    /// Reads the key of a pair. The fields of a struct have names; a number is a key, but of no
    /// field.
    pub(super) fn add(&mut self, tree: &mut Tree<'_>, index: usize) -> Result<Key, Fault> {
        let found = tree.reader.kind()?;
        let key = match found {
            Kind::Bytes | Kind::Text => Key::Name(tree.string()?),
            Kind::Positive | Kind::Negative => Key::Number(tree.integer()?),
            _ => {
                let note = format!(
                    " (map key is of type {found} and cannot be used to match struct field name)"
                );
                return Err(Fault::Type { found, wanted: "string".into(), note });
            }
        };
        tree.budget.value(key.name().len())?;
        if !self.0.insert(key.clone()) {
            return Err(duplicate(&key, index).into());
        }
        Ok(key)
    }
}

fn duplicate(key: &Key, index: usize) -> DecodeError {
    let key = match key {
        Key::Name(name) => quote(name),
        Key::Number(number) => number.to_string(),
    };
    DecodeError(format!("cbor: found duplicate map key {key} at map element index {index}"))
}

pub(super) fn not_a_struct(found: Kind, wanted: String) -> Fault {
    let note = match found {
        Kind::Array => " (cannot decode CBOR array to struct without toarray option)".to_owned(),
        _ => String::new(),
    };
    Fault::Type { found, wanted: wanted.into(), note }
}

/// What is left of a list or map.
pub(super) struct Remaining {
    next: usize,
    length: Option<usize>,
}

impl Remaining {
    /// The index of the next element.
    pub(super) fn next(&mut self, reader: &mut Reader<'_>) -> Option<usize> {
        let is_over = match self.length {
            Some(length) => self.next >= length,
            None => reader.ends(),
        };
        if is_over {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }
}

/// Makes a tree of items whose form was checked, so that it is as deep as that permits.
pub(super) struct Tree<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) budget: Budget,
    /// The struct that the whole body becomes: `v1.Pod`.
    pub(super) root: String,
    /// The member of it that is being read.
    pub(super) member: String,
    /// The place of an unknown field: that of the outermost struct that has one.
    pub(super) unknown: Option<usize>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(reader: Reader<'a>) -> Self {
        Self {
            reader,
            budget: Budget::default(),
            root: String::new(),
            member: String::new(),
            unknown: None,
        }
    }

    /// Reads the tags before a value that is not a time.
    fn begin(&mut self) -> Result<Option<Later>, Fault> {
        self.tags(None, false).map(|(later, _)| later)
    }

    /// Reads the tags before a value, up to a time if those count. Returns the encoding of bytes,
    /// and the tag of a time.
    pub(super) fn tags(
        &mut self,
        mut later: Option<Later>,
        times_count: bool,
    ) -> Result<(Option<Later>, Option<u64>), Fault> {
        let mut ahead = self.reader;
        while ahead.kind()? == Kind::Tag {
            let Header::Tag(tag) = ahead.head()? else { break };
            let (found, first) = (ahead.kind()?, ahead.peek()?);
            let wanted = match tag {
                TIME if found != Kind::Text => "text string",
                EPOCH
                    if !matches!(found, Kind::Positive | Kind::Negative)
                        && !(0xf9..=0xfb).contains(&first) =>
                {
                    "integer or floating-point number"
                }
                _ => continue,
            };
            let what = format!("cbor: tag number {tag} must be followed by {wanted}, got {found}");
            return Err(DecodeError(what).into());
        }
        while self.reader.kind()? == Kind::Tag {
            let Header::Tag(tag) = self.reader.head()? else { break };
            if times_count && matches!(tag, TIME | EPOCH) {
                return Ok((later, Some(tag)));
            }
            if tag != SELF_DESCRIBED {
                later = Later::of(tag).or(later);
            }
        }
        Ok((later, None))
    }

    pub(super) fn is_null(&self) -> Result<bool, Fault> {
        Ok(self.reader.peek()? == 0xf6)
    }

    pub(super) fn pairs(&mut self) -> Result<Remaining, Fault> {
        let length = match self.reader.head()? {
            Header::Map(length) | Header::Array(length) => length,
            _ => Some(0),
        };
        Ok(Remaining { next: 0, length })
    }

    pub(super) fn integer(&mut self) -> Result<i128, Fault> {
        Ok(match self.reader.head()? {
            Header::Positive(value) => i128::from(value),
            Header::Negative(value) => -1 - i128::from(value),
            _ => 0,
        })
    }

    /// A byte string, with its chunks joined.
    pub(super) fn bytes(&mut self) -> Result<Cow<'a, [u8]>, Fault> {
        Ok(match self.reader.head()? {
            Header::Bytes(Some(length)) | Header::Text(Some(length)) => {
                Cow::Borrowed(self.reader.take(length)?)
            }
            Header::Bytes(None) | Header::Text(None) => {
                let mut joined = Vec::new();
                while !self.reader.ends() {
                    let (Header::Bytes(Some(length)) | Header::Text(Some(length))) =
                        self.reader.head()?
                    else {
                        break;
                    };
                    joined.extend_from_slice(self.reader.take(length)?);
                }
                Cow::Owned(joined)
            }
            _ => Cow::Borrowed(&[]),
        })
    }

    /// A string of bytes or text. Text must be UTF-8, in bytes each fault becomes U+FFFD as in
    /// JSON.
    fn string(&mut self) -> Result<String, Fault> {
        let is_text = self.reader.kind()? == Kind::Text;
        let bytes = self.bytes()?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) if is_text => Err(DecodeError("cbor: invalid UTF-8 string".to_owned()).into()),
            Err(_) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// A string, behind any tags.
    pub(super) fn text(&mut self, later: Option<Later>) -> Result<String, Fault> {
        let (later, _) = self.tags(later, false)?;
        let text = match (self.reader.kind()?, later) {
            (Kind::Bytes, Some(later)) => later.encode(&self.bytes()?),
            (Kind::Bytes | Kind::Text, _) => self.string()?,
            (found, _) => return Err(self.mismatch(found, "string")),
        };
        self.budget.value(text.len())?;
        Ok(text)
    }

    /// A value of a wrong type. Simple values and integers beyond `int64` are wrong everywhere.
    pub(super) fn mismatch(&mut self, found: Kind, wanted: impl Into<Cow<'static, str>>) -> Fault {
        let wanted = wanted.into();
        match self.reader.head() {
            Ok(Header::Simple(value)) if !(20..=22).contains(&value) => simple(value).into(),
            Ok(Header::Negative(value)) if i64::try_from(value).is_err() => {
                let note = format!(" ({} overflows Go's int64)", -1 - i128::from(value));
                Fault::Type { found, wanted, note }
            }
            _ => Fault::wanted(found, wanted),
        }
    }

    /// A free-form value.
    pub(super) fn any(&mut self, later: Option<Later>) -> Result<Value, Fault> {
        let (later, time) = self.tags(later, true)?;
        if let Some(tag) = time {
            return self.time(tag);
        }
        let found = self.reader.kind()?;
        match found {
            Kind::Bytes | Kind::Text => return self.text(later).map(Value::String),
            Kind::Map => return self.map(later),
            Kind::Array => {
                self.budget.value(0)?;
                let (mut left, mut items) = (self.pairs()?, Vec::new());
                while left.next(&mut self.reader).is_some() {
                    items.push(self.any(later)?);
                }
                return Ok(Value::Array(items));
            }
            _ => self.budget.value(0)?,
        }
        match self.reader.head()? {
            Header::Positive(value) => signed(found, i128::from(value), "int64", "Go's int64"),
            Header::Negative(value) => signed(found, -1 - i128::from(value), "int64", "Go's int64"),
            Header::Float(value) => Ok(number::float(value).unwrap_or(Value::Null)),
            Header::Simple(20) => Ok(Value::Bool(false)),
            Header::Simple(21) => Ok(Value::Bool(true)),
            Header::Simple(22) => Ok(Value::Null),
            Header::Simple(value) => Err(simple(value).into()),
            _ => Ok(Value::Null),
        }
    }

    /// A map with any keys.
    pub(super) fn map(&mut self, later: Option<Later>) -> Result<Value, Fault> {
        self.members(later, Self::any)
    }

    /// A map whose keys are not fields.
    pub(super) fn members(
        &mut self,
        later: Option<Later>,
        read: impl Fn(&mut Self, Option<Later>) -> Result<Value, Fault>,
    ) -> Result<Value, Fault> {
        self.budget.value(0)?;
        let (mut left, mut members) = (self.pairs()?, Map::new());
        while let Some(index) = left.next(&mut self.reader) {
            let key = match self.is_null()? {
                true => {
                    self.reader.skip()?;
                    String::new()
                }
                false => self.text(later)?,
            };
            self.budget.member(members.len(), key.len())?;
            let value = read(self, later)?;
            if members.contains_key(&key) {
                return Err(duplicate(&Key::Name(key), index).into());
            }
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }

    /// The value below a tag of times.
    fn time(&mut self, tag: u64) -> Result<Value, Fault> {
        const UNWRITABLE: &str = "cbor: decoded time cannot be represented in RFC3339 format with sub-second precision: Time.MarshalText: year outside of range [0,9999]";
        if tag == TIME {
            let mut text = Value::String(self.string()?);
            // Any offset and fraction is kept as it stands, but for zeros at its end.
            let given = text.as_str().unwrap_or_default().to_owned();
            if Moment::parse(&given).is_none() {
                let Err(scalar::Fault::Text(why)) = scalar::canonical(Scalar::Time, &mut text)
                else {
                    return Err(DecodeError(UNWRITABLE.to_owned()).into());
                };
                let what = format!("cbor: cannot set {given} for time.Time: {why}");
                return Err(DecodeError(what).into());
            }
            let given = without_zeros(&given);
            self.budget.value(given.len())?;
            return Ok(Value::String(given));
        }
        let found = self.reader.kind()?;
        let moment = match self.reader.head()? {
            Header::Positive(value) => i64::try_from(value).ok().map(|seconds| (seconds, 0)),
            Header::Negative(value) => i64::try_from(value).ok().map(|value| (-1 - value, 0)),
            Header::Float(value) => Some(split(value)),
            _ => None,
        };
        let Some((seconds, nanos)) = moment else {
            return Err(Fault::wanted(found, "time.Time"));
        };
        let whole = Moment { seconds, nanos: 0 }.rfc3339(false);
        let Some(whole) = whole else { return Err(DecodeError(UNWRITABLE.to_owned()).into()) };
        let text = match nanos {
            0 => whole,
            nanos => without_zeros(&format!("{}.{nanos:09}Z", whole.trim_end_matches('Z'))),
        };
        self.budget.value(text.len())?;
        Ok(Value::String(text))
    }
}

/// An integer of `int64`.
pub(super) fn signed(
    found: Kind,
    integer: i128,
    ty: &'static str,
    limit: &str,
) -> Result<Value, Fault> {
    match i64::try_from(integer) {
        Ok(integer) => Ok(Value::from(integer)),
        Err(_) => {
            let note = format!(" ({integer} overflows {limit})");
            Err(Fault::Type { found, wanted: ty.into(), note })
        }
    }
}

fn simple(value: u8) -> DecodeError {
    unacceptable(Kind::Primitives, &format!("simple value {value} is not recognized"))
}

/// Seconds and nanoseconds of a float, as Go splits it.
fn split(value: f64) -> (i64, u32) {
    let (mut seconds, mut nanos) = (value.trunc() as i64, (value.fract() * 1e9) as i64);
    if nanos < 0 {
        seconds = seconds.saturating_sub(1);
        nanos += 1_000_000_000;
    }
    (seconds, u32::try_from(nanos).unwrap_or(0))
}

/// A time without the zeros at the end of its fraction.
fn without_zeros(time: &str) -> String {
    let Some(dot) = time.find('.') else { return time.to_owned() };
    let (whole, rest) = time.split_at(dot);
    let end = rest.get(1..).and_then(|rest| rest.find(|c: char| !c.is_ascii_digit()));
    let (fraction, zone) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
    let fraction = fraction.trim_end_matches('0');
    let fraction = if fraction == "." { "" } else { fraction };
    format!("{whole}{fraction}{zone}")
}
