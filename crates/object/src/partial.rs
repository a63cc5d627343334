//! Decodes the declared part of an object, and reads as little as possible of the rest.
//!
//! A type that declares three fields of a Pod ignores four kilobytes. `serde_json` reads ignored
//! values byte by byte, to check them; [`Partial`] skips them a block at a time, and what follows
//! the last declared member of an object at once. It follows objects, lists and options itself, and
//! has `serde_json` decode every other value, so both agree on values.

use crate::scan::Cursor;
use crate::skim::SkimError;
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// The deepest nesting that is followed: `serde_json`'s.
const DEPTH_MAX: u32 = 127;

/// The largest number of declared fields that are counted, to stop after the last of them.
pub const FIELDS_MAX: usize = 16;

/// The names of `serde_json`'s own types, which only its deserializer knows.
const OWN_NAMES: &str = "$serde_json::";

/// A deserializer of JSON text for types that declare a part of it.
///
/// On texts that `serde_json` accepts, it gives the same value or an error. Of ignored values it
/// checks only that strings end and brackets balance, and it does not read what follows the members
/// of the outermost object that its type declares (as the fields of a struct, of which there are
/// at most [`FIELDS_MAX`]): texts should have been checked before. Some texts and types that
/// `serde_json` decodes are errors here, such as maps whose keys are numbers; and errors have no
/// position in the text. So decode with `serde_json` after an error.
///
/// ```
/// use serde::Deserialize;
/// use setpoint_object::Partial;
///
/// #[derive(Deserialize)]
/// struct Named {
///     name: String,
/// }
///
/// let mut text = Partial::new(br#"{"spec": {"a": [1, 2]}, "name": "x"}"#);
/// let named = Named::deserialize(&mut text)?;
/// text.end()?;
/// assert_eq!(named.name, "x");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug)]
pub struct Partial<'de> {
    cursor: Cursor<'de>,
    depth: u32,
    /// The rest of the text has no declared members.
    has_stopped: bool,
}

impl<'de> Partial<'de> {
    /// At the start of a text.
    pub fn new(json: &'de [u8]) -> Self {
        Self { cursor: Cursor::new(json), depth: 0, has_stopped: false }
    }

    /// Checks that only white space is left, if it has read that far.
    ///
    /// # Errors
    /// If there is more.
    pub fn end(&mut self) -> Result<(), serde_json::Error> {
        if self.has_stopped {
            return Ok(());
        }
        self.cursor.end().map_err(error)
    }

    /// The next value, as `serde_json` reads it.
    fn value<T>(
        &mut self,
        decode: impl FnOnce(&mut Json<'de>) -> Result<T, serde_json::Error>,
    ) -> Result<T, serde_json::Error> {
        let mut json = Json::from_slice(self.cursor.skip_bytes().map_err(error)?);
        let value = decode(&mut json)?;
        json.end()?;
        Ok(value)
    }

    /// Decodes what is between two brackets, the first of which is next.
    fn nested<T>(
        &mut self,
        decode: impl FnOnce(&mut Self) -> Result<T, serde_json::Error>,
    ) -> Result<T, serde_json::Error> {
        if self.depth >= DEPTH_MAX {
            return Err(serde_json::Error::custom("nested too deeply"));
        }
        self.depth += 1;
        let value = decode(self);
        self.depth -= 1;
        value
    }
}

impl<'de> Partial<'de> {
    /// An object with these fields, if they are known.
    fn members<V: Visitor<'de>>(
        &mut self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, serde_json::Error> {
        if self.cursor.peek() != Some(b'{') {
            return self.value(|json| json.deserialize_map(visitor));
        }
        self.nested(|text| {
            text.cursor.object().map_err(error)?;
            let fields = if fields.len() > FIELDS_MAX { &[] } else { fields };
            // A bit for each.
            let unread = (1 << fields.len()) - 1;
            let mut members = Members { text, fields, unread, is_first: true, is_over: false };
            let value = visitor.visit_map(&mut members)?;
            match members.next_key::<serde::de::IgnoredAny>()? {
                None => Ok(value),
                Some(_) => Err(serde_json::Error::custom("an object with more members")),
            }
        })
    }
}

type Json<'de> = serde_json::Deserializer<serde_json::de::SliceRead<'de>>;

fn error(error: SkimError) -> serde_json::Error {
    serde_json::Error::custom(error)
}

macro_rules! values {
    ($($method:ident($($argument:ident: $kind:ty),*))*) => {$(
        fn $method<V: Visitor<'de>>(self, $($argument: $kind,)* visitor: V) -> Result<V::Value, Self::Error> {
            self.value(|json| json.$method($($argument,)* visitor))
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Partial<'de> {
    type Error = serde_json::Error;

    values! {
        deserialize_any()
        deserialize_bool()
        deserialize_i8() deserialize_i16() deserialize_i32() deserialize_i64() deserialize_i128()
        deserialize_u8() deserialize_u16() deserialize_u32() deserialize_u64() deserialize_u128()
        deserialize_f32() deserialize_f64() deserialize_char()
        deserialize_str() deserialize_string() deserialize_bytes() deserialize_byte_buf()
        deserialize_unit() deserialize_identifier()
        deserialize_unit_struct(name: &'static str)
        deserialize_tuple(len: usize)
        deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.cursor.skip().map_err(error)?;
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        if self.cursor.peek() == Some(b'n') {
            return self.value(|json| json.deserialize_option(visitor));
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        if name.starts_with(OWN_NAMES) {
            return self.value(|json| json.deserialize_newtype_struct(name, visitor));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        if self.cursor.peek() != Some(b'[') {
            return self.value(|json| json.deserialize_seq(visitor));
        }
        self.nested(|text| {
            text.cursor.array().map_err(error)?;
            let mut elements = Elements { text, is_first: true, is_over: false };
            let value = visitor.visit_seq(&mut elements)?;
            match elements.next_element::<serde::de::IgnoredAny>()? {
                None => Ok(value),
                Some(_) => Err(serde_json::Error::custom("a list with more elements")),
            }
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.members(&[], visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        if name.starts_with(OWN_NAMES) {
            return self.value(|json| json.deserialize_struct(name, fields, visitor));
        }
        self.members(fields, visitor)
    }
}

/// The elements of a list.
struct Elements<'l, 'de> {
    text: &'l mut Partial<'de>,
    is_first: bool,
    /// The bracket at its end has been read.
    is_over: bool,
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = serde_json::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Self::Error> {
        if self.is_over || !self.text.cursor.element(&mut self.is_first).map_err(error)? {
            self.is_over = true;
            return Ok(None);
        }
        seed.deserialize(&mut *self.text).map(Some)
    }
}

/// The members of an object.
struct Members<'l, 'de> {
    text: &'l mut Partial<'de>,
    /// The declared ones; none if they are not counted.
    fields: &'static [&'static str],
    /// A bit for each field that has not been read.
    unread: u32,
    is_first: bool,
    /// There is no declared member left; unless the text has stopped, the bracket at the end has
    /// been read.
    is_over: bool,
}

impl<'de> Members<'_, 'de> {
    /// Goes to the end, if all declared members have been read.
    fn stop(&mut self) -> Result<(), serde_json::Error> {
        if self.unread > 0 || self.fields.is_empty() || self.is_over {
            return Ok(());
        }
        self.is_over = true;
        if self.text.depth == 1 {
            self.text.has_stopped = true;
            return Ok(());
        }
        self.text.cursor.skip_rest().map_err(error)
    }

    fn key<S: DeserializeSeed<'de>>(
        &mut self,
        key: &'de str,
        seed: S,
    ) -> Result<S::Value, serde_json::Error> {
        if let Some(at) = self.fields.iter().position(|field| *field == key) {
            self.unread &= !(1 << at);
        }
        seed.deserialize(BorrowedStrDeserializer::new(key))
    }
}

impl<'de> MapAccess<'de> for Members<'_, 'de> {
    type Error = serde_json::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Self::Error> {
        self.stop()?;
        if self.is_over {
            return Ok(None);
        }
        let Some(key) = self.text.cursor.key(&mut self.is_first).map_err(error)? else {
            self.is_over = true;
            return Ok(None);
        };
        if let Some(plain) = key.plain()
            && plain.iter().all(|byte| (b' '..0x80).contains(byte))
            && let Ok(plain) = std::str::from_utf8(plain)
        {
            return self.key(plain, seed).map(Some);
        }
        seed.deserialize(&mut Json::from_slice(self.text.cursor.quoted(&key))).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, Self::Error> {
        seed.deserialize(&mut *self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_strategy;
    use proptest::prelude::*;
    use serde::Deserialize;
    use serde::de::{DeserializeOwned, IgnoredAny};
    use serde_json::Value;
    use serde_json::value::RawValue;
    use std::collections::{BTreeMap, HashMap};

    fn partial<T: DeserializeOwned>(text: &[u8]) -> Result<T, serde_json::Error> {
        let mut partial = Partial::new(text);
        let value = T::deserialize(&mut partial)?;
        partial.end()?;
        Ok(value)
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        A,
        B { x: u8 },
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Text(String);

    /// Names that occur in generated documents.
    #[derive(Debug, PartialEq, Deserialize)]
    struct Declared {
        a: Option<Box<Declared>>,
        #[serde(default)]
        b: Vec<Option<Declared>>,
        c: Option<BTreeMap<String, Value>>,
        d: Option<Text>,
        e: Option<Kind>,
        f: Option<f64>,
        g: Option<(u8, bool)>,
    }

    /// Any value under one of the declared names, in any place.
    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0_u8..9).prop_map(Value::from),
            any::<i32>().prop_map(|n| Value::from(f64::from(n) / 8.0)),
            "[ -~\n\\u{e9}]{0,9}".prop_map(Value::from),
            Just(serde_json::json!("a")),
            Just(serde_json::json!({"b": {"x": 1}})),
            Just(serde_json::json!([1, true])),
            json_strategy::value(),
        ];
        leaf.prop_recursive(5, 40, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-i]", inner, 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_serde_json_accepts_has_the_same_value_or_is_an_error(
            value in document(),
            is_pretty: bool,
        ) {
            let text = if is_pretty {
                serde_json::to_vec_pretty(&value).unwrap()
            } else {
                serde_json::to_vec(&value).unwrap()
            };
            let expected: Result<Declared, _> = serde_json::from_slice(&text);
            match (partial::<Declared>(&text), expected) {
                (Ok(decoded), Ok(expected)) => prop_assert_eq!(decoded, expected),
                (Ok(decoded), Err(error)) => prop_assert!(false, "{decoded:?}, {error}"),
                (Err(_), _) => {}
            }
            prop_assert_eq!(partial::<Value>(&text).unwrap(), value);
        }

        #[test]
        fn declared_parts_are_decoded_without_errors(value in document()) {
            let object = serde_json::json!({"z": value, "f": 2.5, "b": [null, {"d": "t"}], "y": value});
            let text = serde_json::to_vec(&object).unwrap();
            let decoded: Declared = partial(&text).unwrap();
            prop_assert_eq!(decoded, serde_json::from_slice::<Declared>(&text).unwrap());
        }

        #[test]
        fn any_bytes_are_decoded_as_by_serde_json_or_are_an_error(
            bytes in prop::collection::vec(
                prop_oneof![prop::sample::select(&b"[]{},:\"\\ abz01nul"[..]), any::<u8>()],
                0..60,
            ),
        ) {
            if let Ok(decoded) = partial::<Value>(&bytes) {
                prop_assert_eq!(decoded, serde_json::from_slice::<Value>(&bytes).unwrap());
            }
            let _ = partial::<Declared>(&bytes);
            let _ = partial::<IgnoredAny>(&bytes);
        }
    }

    #[test]
    fn nothing_is_read_after_the_last_declared_member() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Outer {
            a: u8,
            b: Inner,
        }
        #[derive(Debug, PartialEq, Deserialize)]
        struct Inner {
            c: u8,
        }
        let value = Outer { a: 1, b: Inner { c: 2 } };
        let whole = br#"{"b": {"x": [{}], "c": 2, "y": [{"z": "}"}], "w": {}}, "a": 1, "d": 3}"#;
        assert_eq!(partial::<Outer>(whole).unwrap(), value);
        let cut = whole.len() - 5;
        assert_eq!(partial::<Outer>(&whole[..cut]).unwrap(), value);
        let list = [&b"["[..], whole, b",", whole, b"]"].concat();
        assert_eq!(partial::<Vec<Outer>>(&list).unwrap().len(), 2);
        assert!(partial::<Vec<Outer>>(&list[..cut]).is_err());
    }

    #[test]
    fn types_of_serde_json_are_left_to_it() {
        let text = br#"{"a": {"x": [1, 2 ]}, "b": "c"}"#;
        let raw: BTreeMap<String, Box<RawValue>> = partial(text).unwrap();
        assert_eq!(raw["a"].get(), r#"{"x": [1, 2 ]}"#);
        let mut text = Partial::new(text);
        let borrowed = HashMap::<&str, &RawValue>::deserialize(&mut text).unwrap();
        assert_eq!(borrowed["b"].get(), "\"c\"");
    }

    #[test]
    fn a_repeated_or_missing_member_and_deep_nesting_are_errors() {
        #[derive(Debug, Deserialize)]
        struct One {
            #[expect(dead_code, reason = "only decoded")]
            a: u8,
        }
        for text in [&br#"{"b":1,"b":2}"#[..], b"{}", br#"{"b":1}"#, br#"{"b"#, b"[1,2]", b""] {
            assert!(partial::<One>(text).is_err(), "{}", String::from_utf8_lossy(text));
        }
        let deep = ["{\"a\":".repeat(200).as_str(), "null", "}".repeat(200).as_str()].concat();
        assert!(partial::<Declared>(deep.as_bytes()).is_err());
        assert!(serde_json::from_slice::<Declared>(deep.as_bytes()).is_err());
    }
}
