//! Decodes objects into Rust values without excess capacity.
//!
//! # Theory
//!
//! `serde_json` does not know the length of a list before its end, and a `Vec` without a size hint
//! starts with a capacity of four: a cached Pod with one container would have room for three more,
//! a kilobyte each. So for a type that declares [`whole`] objects, a first pass over the text
//! counts the lengths of all lists, and the decoder gets each as a hint. Ignored values are read,
//! too, to count the lists in them.
//!
//! For a type that declares [`part`] of an object this would cost more than the decoding. There
//! [`Partial`] skips ignored values, which the intake has scanned. The first decoding of a type
//! determines which it is: a type that ignores an eighth of the values or more declares a part.
//!
//! `serde_json` determines the value and the errors in both cases: what `Partial` cannot decode is
//! decoded again without it. The lengths are hints, and a wrong one costs memory only. Decoding
//! also sums up about how many bytes the value takes on the heap: texts, elements of lists and
//! entries of maps.
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use setpoint_object::Partial;
use std::cell::Cell;
use std::fmt;

/// Decodes JSON from a server as caches do: a date that the types of times cannot hold, of the last
/// hours of the year 9999, is the last one that they can, `9999-12-30T22:00:00Z`.
///
/// # Errors
/// As [`serde_json::from_slice`].
pub fn from_json<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    decode(json, &Run::default())
}

/// Decodes an object into lists without excess capacity, as caches store it.
///
/// # Errors
/// As [`serde_json::from_slice`].
pub(crate) fn from_slice<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    Ok(whole(json)?.0)
}

/// Decodes an object of which the type declares nearly everything, into lists without excess
/// capacity. Returns the value, its bytes, and whether the type declares only a part.
///
/// # Errors
/// As [`serde_json::from_slice`].
pub(crate) fn whole<T: DeserializeOwned>(
    json: &[u8],
) -> Result<(T, usize, bool), serde_json::Error> {
    let run = Run { lengths: Some(setpoint_object::array_lengths(json)), ..Run::default() };
    let value = decode(json, &run)?;
    let is_part = run.n_ignored.get() * 8 > run.n_values.get();
    Ok((value, run.n_bytes.get() + size_of::<T>(), is_part))
}

/// Decodes an object of which the type declares a part; skips the rest. Returns the value and its
/// bytes.
///
/// # Errors
/// As [`serde_json::from_slice`].
pub(crate) fn part<T: DeserializeOwned>(json: &[u8]) -> Result<(T, usize), serde_json::Error> {
    let run = Run::default();
    let mut partial = Partial::new(json);
    let decoded = T::deserialize(Exact { inner: &mut partial, run: &run });
    if let Ok(value) = decoded
        && partial.end().is_ok()
    {
        return Ok((value, run.n_bytes.get() + size_of::<T>()));
    }
    let run = Run::default();
    let value = decode(json, &run)?;
    Ok((value, run.n_bytes.get() + size_of::<T>()))
}

fn decode<T: DeserializeOwned>(json: &[u8], run: &Run) -> Result<T, serde_json::Error> {
    let mut decoder = serde_json::Deserializer::from_slice(json);
    let value = T::deserialize(Exact { inner: &mut decoder, run })?;
    decoder.end()?;
    Ok(value)
}

/// The bytes of a map's entry beside its value: the key's text, and its part of a node.
const ENTRY_BYTES: usize = 64;

/// The last date that the types of times can hold, as the server writes dates. Objects may have
/// later ones, up to the end of the last day of the year 9999, which often means "never". Such a
/// date is decoded as the last one, because one object that cannot be decoded keeps a controller
/// from all objects of its pass.
const LAST_TIME: &str = "9999-12-30T22:00:00Z";

/// The names of the types of times.
const TIMES: [&str; 2] = ["Time", "MicroTime"];

/// Whether a date of a `Time` or `MicroTime` is one of the last hours of the year 9999.
fn is_after_last(text: &str) -> bool {
    const LAST_DAYS: &str = "9999-12-3";
    text.starts_with(LAST_DAYS) && text.len() >= LAST_TIME.len() && text > LAST_TIME
}

/// The state of one decoding.
#[derive(Default)]
struct Run {
    /// The lengths of the lists, in the order of the text, which is the order of decoding. `None`
    /// if there are no hints.
    lengths: Option<Vec<u32>>,
    next: Cell<usize>,
    n_bytes: Cell<usize>,
    n_values: Cell<usize>,
    n_ignored: Cell<usize>,
    /// The next object is a map, not a struct.
    is_map: Cell<bool>,
    /// The next text is a date.
    is_time: Cell<bool>,
}

impl Run {
    fn next(&self) -> Option<usize> {
        let lengths = self.lengths.as_ref()?;
        let next = self.next.get();
        self.next.set(next + 1);
        usize::try_from(*lengths.get(next)?).ok()
    }

    fn takes(&self, n_bytes: usize) {
        self.n_bytes.set(self.n_bytes.get() + n_bytes);
    }
}

/// A serde value with the state of the decoding.
struct Exact<'l, T> {
    inner: T,
    run: &'l Run,
}

impl<'l, T> Exact<'l, T> {
    fn with<U>(&self, inner: U) -> Exact<'l, U> {
        Exact { inner, run: self.run }
    }
}

macro_rules! forward {
    ($($method:ident($($argument:ident: $kind:ty),*))*) => {$(
        fn $method<V: Visitor<'de>>(self, $($argument: $kind,)* visitor: V) -> Result<V::Value, D::Error> {
            let visitor = self.with(visitor);
            self.inner.$method($($argument,)* visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Exact<'_, D> {
    type Error = D::Error;

    forward! {
        deserialize_bool()
        deserialize_i8() deserialize_i16() deserialize_i32() deserialize_i64() deserialize_i128()
        deserialize_u8() deserialize_u16() deserialize_u32() deserialize_u64() deserialize_u128()
        deserialize_f32() deserialize_f64() deserialize_char()
        deserialize_str() deserialize_string() deserialize_bytes() deserialize_byte_buf()
        deserialize_option() deserialize_unit() deserialize_seq() deserialize_identifier()
        deserialize_unit_struct(name: &'static str)
        deserialize_tuple(len: usize)
        deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.run.is_time.set(TIMES.contains(&name));
        let visitor = self.with(visitor);
        self.inner.deserialize_newtype_struct(name, visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.run.is_map.set(true);
        let visitor = self.with(visitor);
        self.inner.deserialize_any(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.run.is_map.set(true);
        let visitor = self.with(visitor);
        self.inner.deserialize_map(visitor)
    }

    /// Reads ignored values if there are lengths, to count the lists in them.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        if self.run.lengths.is_none() {
            return self.inner.deserialize_ignored_any(visitor);
        }
        self.run.n_ignored.set(self.run.n_ignored.get() + 1);
        let n_bytes = self.run.n_bytes.get();
        let run = self.run;
        let ignored = self.deserialize_any(visitor);
        run.n_bytes.set(n_bytes);
        ignored
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! visit {
    ($($method:ident: $kind:ty,)*) => {$(
        fn $method<E: Error>(self, value: $kind) -> Result<V::Value, E> {
            self.inner.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Exact<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit! {
        visit_bool: bool,
        visit_i8: i8, visit_i16: i16, visit_i32: i32, visit_i64: i64, visit_i128: i128,
        visit_u8: u8, visit_u16: u16, visit_u32: u32, visit_u64: u64, visit_u128: u128,
        visit_f32: f32, visit_f64: f64, visit_char: char,
        visit_bytes: &[u8], visit_borrowed_bytes: &'de [u8], visit_byte_buf: Vec<u8>,
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<V::Value, E> {
        self.run.takes(value.len());
        match self.run.is_time.replace(false) && is_after_last(value) {
            true => self.inner.visit_str(LAST_TIME),
            false => self.inner.visit_str(value),
        }
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<V::Value, E> {
        self.run.takes(value.len());
        match self.run.is_time.replace(false) && is_after_last(value) {
            true => self.inner.visit_borrowed_str(LAST_TIME),
            false => self.inner.visit_borrowed_str(value),
        }
    }

    fn visit_string<E: Error>(self, value: String) -> Result<V::Value, E> {
        self.run.takes(value.len());
        self.inner.visit_string(value)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let inner = self.with(inner);
        self.inner.visit_some(inner)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        let inner = self.with(inner);
        self.inner.visit_newtype_struct(inner)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        let elements =
            List { left: self.run.next(), n_room: 0, n_read: 0, elements: self.with(elements) };
        self.inner.visit_seq(elements)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        let is_map = self.run.is_map.replace(false);
        let members = Members { members: self.with(members), is_map };
        self.inner.visit_map(members)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        let variant = self.with(variant);
        self.inner.visit_enum(variant)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Exact<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.run.n_values.set(self.run.n_values.get() + 1);
        // They may be set by a value that was no object, or no text.
        self.run.is_map.set(false);
        self.run.is_time.set(false);
        let inner = self.with(inner);
        self.inner.deserialize(inner)
    }
}

/// A list, the number of elements left, and the capacity that a `Vec` has for it.
struct List<'l, A> {
    elements: Exact<'l, A>,
    left: Option<usize>,
    n_room: usize,
    n_read: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for List<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.left = self.left.map(|left| left.saturating_sub(1));
        let run = self.elements.run;
        let seed = self.elements.with(seed);
        let element = self.elements.inner.next_element_seed(seed)?;
        if element.is_some() {
            self.n_read += 1;
            if self.left.is_some() {
                run.takes(size_of::<S::Value>());
            } else if self.n_read > self.n_room {
                // As a `Vec` grows.
                let n_room = (2 * self.n_room).max(4);
                run.takes((n_room - self.n_room) * size_of::<S::Value>());
                self.n_room = n_room;
            }
        }
        Ok(element)
    }

    fn size_hint(&self) -> Option<usize> {
        self.left
    }
}

/// The members of an object.
struct Members<'l, A> {
    members: Exact<'l, A>,
    is_map: bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Members<'_, A> {
    type Error = A::Error;

    /// Keys are strings: there are no lists in them.
    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.members.inner.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        if self.is_map {
            self.members.run.takes(ENTRY_BYTES + size_of::<S::Value>());
        }
        let seed = self.members.with(seed);
        self.members.inner.next_value_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.members.inner.size_hint()
    }
}

impl<'de, 'l, A: EnumAccess<'de>> EnumAccess<'de> for Exact<'l, A> {
    type Error = A::Error;
    type Variant = Exact<'l, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        let run = self.run;
        let (value, inner) = self.inner.variant_seed(seed)?;
        Ok((value, Exact { inner, run }))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Exact<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.with(seed);
        self.inner.newtype_variant_seed(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let visitor = self.with(visitor);
        self.inner.tuple_variant(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = self.with(visitor);
        self.inner.struct_variant(fields, visitor)
    }
}

#[cfg(test)]
mod tests;
