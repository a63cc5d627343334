//! Whether bytes are one well-formed item, before any of them has a meaning.

use super::super::{DecodeError, JSON_DEPTH_MAX};
use super::MAGIC;
use super::wire::{Kind, Reader, unacceptable, unexpected_end};
use ciborium_ll::Header;

/// Tags of integers of any size, which JSON does not keep.
const BIG: [u64; 2] = [2, 3];

/// Checks that a body is one item and nothing else.
pub(super) fn check(body: &[u8]) -> Result<(), DecodeError> {
    if body.is_empty() {
        return Err(DecodeError("EOF".to_owned()));
    }
    let mut reader = Reader::new(body);
    if body.starts_with(MAGIC) {
        // Not a level of the object: an object is as deep in every encoding.
        reader.take(MAGIC.len())?;
    }
    item(&mut reader, 0)?;
    match body.len() - reader.position() {
        0 => Ok(()),
        left => {
            let at = reader.position();
            let what = format!("cbor: {left} bytes of extraneous data starting at index {at}");
            Err(DecodeError(what))
        }
    }
}

/// Reads one item that is `depth` arrays, maps and tags below the first.
pub(super) fn item(reader: &mut Reader<'_>, mut depth: usize) -> Result<(), DecodeError> {
    loop {
        let kind = reader.kind()?;
        match reader.head()? {
            Header::Bytes(Some(length)) | Header::Text(Some(length)) => {
                reader.take(length)?;
            }
            Header::Bytes(None) | Header::Text(None) => chunks(reader, kind)?,
            Header::Array(Some(length)) => {
                deeper(&mut depth)?;
                for _ in 0..length {
                    item(reader, depth)?;
                }
            }
            Header::Map(Some(length)) => {
                deeper(&mut depth)?;
                for _ in 0..length {
                    item(reader, depth)?;
                    item(reader, depth)?;
                }
            }
            Header::Array(None) => {
                deeper(&mut depth)?;
                while !reader.ends() {
                    item(reader, depth)?;
                }
            }
            Header::Map(None) => {
                deeper(&mut depth)?;
                while !reader.ends() {
                    item(reader, depth)?;
                    // An end here is one inside a pair, which `head` refuses.
                    item(reader, depth)?;
                }
            }
            Header::Tag(tag) => {
                reader.peek()?;
                if BIG.contains(&tag) {
                    return Err(unacceptable(Kind::Tag, "bignum"));
                }
                deeper(&mut depth)?;
                continue;
            }
            _ => {}
        }
        return Ok(());
    }
}

/// Reads the chunks of a string without a length.
fn chunks(reader: &mut Reader<'_>, kind: Kind) -> Result<(), DecodeError> {
    while !reader.ends() {
        let chunk = reader.kind()?;
        if chunk != kind {
            return Err(DecodeError(format!(
                "cbor: wrong element type {chunk} for indefinite-length {kind}"
            )));
        }
        match reader.head()? {
            Header::Bytes(Some(length)) | Header::Text(Some(length)) => {
                reader.take(length)?;
            }
            Header::Bytes(None) | Header::Text(None) => {
                return Err(DecodeError(format!(
                    "cbor: indefinite-length {kind} chunk is not definite-length"
                )));
            }
            _ => return Err(unexpected_end()),
        }
    }
    Ok(())
}

fn deeper(depth: &mut usize) -> Result<(), DecodeError> {
    *depth += 1;
    if *depth > JSON_DEPTH_MAX {
        return Err(DecodeError(format!("cbor: exceeded max nested level {JSON_DEPTH_MAX}")));
    }
    Ok(())
}
