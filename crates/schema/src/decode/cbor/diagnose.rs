//! The diagnostic notation of an item (RFC 8949, section 8), as errors show bodies.

use super::super::DecodeError;
use super::wire::{Kind, Reader};
use ciborium_ll::Header;
use std::fmt::Write as _;

/// Appends the next item, whose form was checked. Writing to a string does not fail.
pub(super) fn item(reader: &mut Reader<'_>, out: &mut String) -> Result<(), DecodeError> {
    let kind = reader.kind()?;
    match reader.head()? {
        Header::Positive(value) => _ = write!(out, "{value}"),
        Header::Negative(value) => _ = write!(out, "{}", -1 - i128::from(value)),
        Header::Float(value) => _ = write!(out, "{value:?}"),
        Header::Simple(20) => out.push_str("false"),
        Header::Simple(21) => out.push_str("true"),
        Header::Simple(22) => out.push_str("null"),
        Header::Simple(23) => out.push_str("undefined"),
        Header::Simple(value) => _ = write!(out, "simple({value})"),
        Header::Bytes(Some(length)) | Header::Text(Some(length)) => {
            string(reader.take(length)?, kind, out);
        }
        Header::Bytes(None) | Header::Text(None) => {
            if reader.ends() {
                out.push_str(if kind == Kind::Text { "\"\"_" } else { "''_" });
                return Ok(());
            }
            out.push_str("(_ ");
            until_end(reader, out, item)?;
            out.push(')');
        }
        Header::Array(Some(length)) => {
            out.push('[');
            listed(reader, out, length, item)?;
            out.push(']');
        }
        Header::Map(Some(length)) => {
            out.push('{');
            listed(reader, out, length, pair)?;
            out.push('}');
        }
        Header::Array(None) => {
            out.push_str("[_ ");
            until_end(reader, out, item)?;
            out.push(']');
        }
        Header::Map(None) => {
            out.push_str("{_ ");
            until_end(reader, out, pair)?;
            out.push('}');
        }
        Header::Tag(tag) => {
            _ = write!(out, "{tag}(");
            item(reader, out)?;
            out.push(')');
        }
        Header::Break => {}
    }
    Ok(())
}

type Push = fn(&mut Reader<'_>, &mut String) -> Result<(), DecodeError>;

fn pair(reader: &mut Reader<'_>, out: &mut String) -> Result<(), DecodeError> {
    item(reader, out)?;
    out.push_str(": ");
    item(reader, out)
}

fn listed(
    reader: &mut Reader<'_>,
    out: &mut String,
    length: usize,
    push: Push,
) -> Result<(), DecodeError> {
    for at in 0..length {
        if at > 0 {
            out.push_str(", ");
        }
        push(reader, out)?;
    }
    Ok(())
}

fn until_end(reader: &mut Reader<'_>, out: &mut String, push: Push) -> Result<(), DecodeError> {
    let mut is_first = true;
    while !reader.ends() {
        if !is_first {
            out.push_str(", ");
        }
        is_first = false;
        push(reader, out)?;
    }
    Ok(())
}

/// A string: bytes in single quotes if they are UTF-8, text in double quotes.
fn string(bytes: &[u8], kind: Kind, out: &mut String) {
    let text =
        std::str::from_utf8(bytes).ok().filter(|text| kind == Kind::Text || !text.is_empty());
    let Some(text) = text else {
        out.push_str("h'");
        bytes.iter().for_each(|byte| _ = write!(out, "{byte:02x}"));
        out.push('\'');
        return;
    };
    let quote = if kind == Kind::Text { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c if c == quote || c == '\\' => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push(quote);
}
