//! Items of CBOR, one head at a time.

use super::super::DecodeError;
use ciborium_ll::{Decoder, Header};
use std::fmt;

/// Elements of one array: the limit of the reference's decoder.
const ELEMENTS_MAX: usize = 2_147_483_647;
/// Pairs of one map: the limit of the reference's decoder.
const PAIRS_MAX: usize = 2_097_152;
/// Lengths above this overflow the reference's integers.
const LENGTH_MAX: usize = usize::MAX >> 1;
/// The byte that ends what has no length.
const BREAK: u8 = 0xff;
/// The byte before a simple value of one byte.
const LONG_SIMPLE: u8 = 0xf8;
/// Simple values below this have no byte of their own.
const LONG_SIMPLE_MIN: u8 = 32;

/// The major type of an item; displays as the reference calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Positive,
    Negative,
    Bytes,
    Text,
    Array,
    Map,
    Tag,
    Primitives,
}

impl Kind {
    fn of(first: u8) -> Self {
        match first >> 5 {
            0 => Self::Positive,
            1 => Self::Negative,
            2 => Self::Bytes,
            3 => Self::Text,
            4 => Self::Array,
            5 => Self::Map,
            6 => Self::Tag,
            _ => Self::Primitives,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Positive => "positive integer",
            Self::Negative => "negative integer",
            Self::Bytes => "byte string",
            Self::Text => "UTF-8 text string",
            Self::Array => "array",
            Self::Map => "map",
            Self::Tag => "tag",
            Self::Primitives => "primitives",
        })
    }
}

/// A place in a body. Nothing is read beyond its end, whatever a head claims.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(body: &'a [u8]) -> Self {
        Self { body, at: 0 }
    }

    fn rest(&self) -> &'a [u8] {
        self.body.get(self.at..).unwrap_or_default()
    }

    /// How many bytes were read.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// The first byte of the next item.
    pub(super) fn peek(&self) -> Result<u8, DecodeError> {
        self.rest().first().copied().ok_or_else(unexpected_end)
    }

    /// The major type of the next item.
    pub(super) fn kind(&self) -> Result<Kind, DecodeError> {
        self.peek().map(Kind::of)
    }

    /// Whether the end of what has no length is next; reads it.
    pub(super) fn ends(&mut self) -> bool {
        let ends = self.rest().first() == Some(&BREAK);
        self.at += usize::from(ends);
        ends
    }

    /// Reads a head.
    pub(super) fn head(&mut self) -> Result<Header, DecodeError> {
        let rest = self.rest();
        let kind = self.kind()?;
        if let [LONG_SIMPLE, value, ..] = rest
            && *value < LONG_SIMPLE_MIN
        {
            return Err(DecodeError(format!("cbor: invalid simple value {value} for type {kind}")));
        }
        let mut decoder = Decoder::from(rest);
        let Ok(head) = decoder.pull() else { return Err(fault(rest)) };
        self.at += decoder.offset();
        match head {
            Header::Bytes(Some(length)) | Header::Text(Some(length)) if length > LENGTH_MAX => {
                Err(DecodeError(format!(
                    "cbor: {kind} length {length} is too large, causing integer overflow"
                )))
            }
            Header::Array(Some(length)) | Header::Map(Some(length)) if length > LENGTH_MAX => {
                Err(DecodeError(format!(
                    "cbor: {kind} length {length} is too large, it would cause integer overflow"
                )))
            }
            Header::Array(Some(length)) if length > ELEMENTS_MAX => Err(DecodeError(format!(
                "cbor: exceeded max number of elements {ELEMENTS_MAX} for CBOR array"
            ))),
            Header::Map(Some(length)) if length > PAIRS_MAX => Err(DecodeError(format!(
                "cbor: exceeded max number of key-value pairs {PAIRS_MAX} for CBOR map"
            ))),
            Header::Break => Err(DecodeError("cbor: unexpected \"break\" code".to_owned())),
            Header::Float(float) if float.is_nan() => Err(unacceptable(kind, "floating-point NaN")),
            Header::Float(float) if float.is_infinite() => {
                Err(unacceptable(kind, "floating-point infinity"))
            }
            head => Ok(head),
        }
    }

    /// Reads the content of a string.
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let taken = self.rest().get(..length).ok_or_else(unexpected_end)?;
        self.at += length;
        Ok(taken)
    }

    /// Reads a whole item, whose form was checked.
    pub(super) fn skip(&mut self) -> Result<(), DecodeError> {
        super::form::item(self, 0).map(drop)
    }
}

/// An item that is well-formed but has no meaning here.
pub(super) fn unacceptable(kind: Kind, what: &str) -> DecodeError {
    DecodeError(format!("cbor: data item of cbor type {kind} is not accepted by protocol: {what}"))
}

pub(super) fn unexpected_end() -> DecodeError {
    DecodeError("unexpected EOF".to_owned())
}

/// Why the bytes do not begin with a head.
fn fault(rest: &[u8]) -> DecodeError {
    let Some(first) = rest.first() else { return unexpected_end() };
    let (kind, low) = (Kind::of(*first), first & 0x1f);
    let has_length = !matches!(kind, Kind::Positive | Kind::Negative | Kind::Tag);
    match low {
        28..=30 => {}
        31 if !has_length => {}
        _ => return unexpected_end(),
    }
    DecodeError(format!("cbor: invalid additional information {low} for type {kind}"))
}
