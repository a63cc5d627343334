//! Tags, varints and lengths: protobuf without a schema.

use super::DecodeError;

/// One field's content as it stands on the wire.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scalar<'a> {
    /// Wire type 0: integers, booleans.
    Varint(u64),
    /// Wire type 1: doubles.
    Fixed64([u8; 8]),
    /// Wire type 2: text, bytes, messages.
    Bytes(&'a [u8]),
    /// Wire type 5.
    Fixed32,
}

/// Reads the fields of one message in the order they were written.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// The next field: number and content.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Scalar<'a>)>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number =
            u32::try_from(tag >> 3).ok().filter(|number| *number > 0).ok_or_else(|| {
                DecodeError(format!("proto: illegal tag {} (wire type {})", tag >> 3, tag & 7))
            })?;
        let scalar = match tag & 7 {
            0 => Scalar::Varint(self.varint()?),
            1 => Scalar::Fixed64(self.take(8)?.try_into().map_err(|_| eof())?),
            2 => {
                let length = self.varint()?;
                Scalar::Bytes(self.take(usize::try_from(length).map_err(|_| eof())?)?)
            }
            5 => {
                self.take(4)?;
                Scalar::Fixed32
            }
            other => return Err(DecodeError(format!("proto: illegal wireType {other}"))),
        };
        Ok(Some((number, scalar)))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(eof)?;
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or_else(eof)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError("proto: integer overflow".to_owned()))
    }
}

impl<'a> Scalar<'a> {
    pub(super) fn bytes(self) -> Result<&'a [u8], DecodeError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            other => Err(other.wrong("2")),
        }
    }

    /// Text; what is no UTF-8 becomes U+FFFD, as in JSON.
    pub(super) fn text(self) -> Result<String, DecodeError> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    /// An `int32`, `int64` or `bool`; negative numbers are written as 64 bits.
    pub(super) fn integer(self) -> Result<i64, DecodeError> {
        match self {
            Self::Varint(value) => Ok(value.cast_signed()),
            other => Err(other.wrong("0")),
        }
    }

    pub(super) fn double(self) -> Result<f64, DecodeError> {
        match self {
            Self::Fixed64(bytes) => Ok(f64::from_le_bytes(bytes)),
            other => Err(other.wrong("1")),
        }
    }

    fn wrong(self, wanted: &str) -> DecodeError {
        let found = match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Fixed32 => 5,
        };
        DecodeError(format!("proto: wrong wireType = {found}, not {wanted}"))
    }
}

fn eof() -> DecodeError {
    DecodeError("unexpected EOF".to_owned())
}
