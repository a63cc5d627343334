//! Values that setters take and that have more than one form in Rust.

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::{
    ByteString,
    apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString},
};
use serde_json::Value;

/// A quantity, such as `500m` or `2Gi`. The server validates it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuantityText(String);

/// A number or a text, such as a port or its name, or a percentage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberOrText(Value);

/// Bytes, which are sent as Base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base64(String);

macro_rules! from_text {
    ($($text:ty),*) => {$(
        impl From<$text> for QuantityText {
            fn from(text: $text) -> Self {
                Self(text.into())
            }
        }

        impl From<$text> for NumberOrText {
            fn from(text: $text) -> Self {
                Self(Value::String(text.into()))
            }
        }
    )*};
}
from_text!(&str, String, &String);

impl From<Quantity> for QuantityText {
    fn from(Quantity(text): Quantity) -> Self {
        Self(text)
    }
}

impl From<i32> for NumberOrText {
    fn from(number: i32) -> Self {
        Self(number.into())
    }
}

impl From<IntOrString> for NumberOrText {
    fn from(value: IntOrString) -> Self {
        match value {
            IntOrString::Int(number) => number.into(),
            IntOrString::String(text) => text.into(),
        }
    }
}

impl From<&[u8]> for Base64 {
    fn from(bytes: &[u8]) -> Self {
        Self(STANDARD.encode(bytes))
    }
}

impl<const N: usize> From<&[u8; N]> for Base64 {
    fn from(bytes: &[u8; N]) -> Self {
        bytes.as_slice().into()
    }
}

impl From<Vec<u8>> for Base64 {
    fn from(bytes: Vec<u8>) -> Self {
        bytes.as_slice().into()
    }
}

impl From<ByteString> for Base64 {
    fn from(ByteString(bytes): ByteString) -> Self {
        bytes.into()
    }
}

impl From<QuantityText> for Value {
    fn from(QuantityText(text): QuantityText) -> Self {
        text.into()
    }
}

impl From<NumberOrText> for Value {
    fn from(NumberOrText(value): NumberOrText) -> Self {
        value
    }
}

impl From<Base64> for Value {
    fn from(Base64(text): Base64) -> Self {
        text.into()
    }
}
