//! Setters of built-in types.

/// Defines the partials of a group version: a type per definition, and a setter per field.
macro_rules! partials {
    ($($(#[$doc:meta])* $name:ident { $($setter:ident $kind:ident$(($($of:tt)*))? $wire:literal)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default)]
        #[must_use = "an apply sends only what it is given"]
        pub struct $name($crate::Members);

        impl $crate::Partial for $name {
            fn from_members(members: $crate::Members) -> Self {
                Self(members)
            }

            fn into_members(self) -> $crate::Members {
                self.0
            }
        }

        #[allow(clippy::should_implement_trait, reason = "`add` is a field of Capabilities")]
        impl $name {
            /// Sets a field if there is a value: `if_some(value, Self::field)`.
            pub fn if_some<V>(self, value: Option<V>, set: impl FnOnce(Self, V) -> Self) -> Self {
                match value {
                    Some(value) => set(self, value),
                    None => self,
                }
            }

            $($crate::setters::setter! { $setter $kind$(($($of)*))? $wire })*
        }
    )*};
}

/// Defines one setter.
macro_rules! setter {
    ($setter:ident list($of:ident) $wire:literal) => {
        #[doc = concat!("Sets `", $wire, "`, a list.")]
        pub fn $setter<I: IntoIterator>(mut self, values: I) -> Self
        where
            I::Item: Into<$crate::setters::rust!($of)>,
        {
            let values = values.into_iter().map(|value| {
                let value: $crate::setters::rust!($of) = value.into();
                $crate::setters::json!($of value)
            });
            self.0.set($wire, values.collect::<Vec<_>>());
            self
        }
    };
    ($setter:ident map($of:ident) $wire:literal) => {
        #[doc = concat!("Adds entries to `", $wire, "`.")]
        pub fn $setter<K: Into<String>, V: Into<$crate::setters::rust!($of)>>(
            mut self,
            entries: impl IntoIterator<Item = (K, V)>,
        ) -> Self {
            let entries = entries.into_iter().map(|(key, value)| {
                let value: $crate::setters::rust!($of) = value.into();
                (key.into(), $crate::setters::json!($of value))
            });
            self.0.extend($wire, entries);
            self
        }
    };
    ($setter:ident object($of:ty) $wire:literal) => {
        #[doc = concat!("Changes `", $wire, "`.")]
        pub fn $setter(mut self, change: impl FnOnce($of) -> $of) -> Self {
            self.0.change($wire, change);
            self
        }
    };
    ($setter:ident items($of:ty) $wire:literal) => {
        #[doc = concat!("Adds an item to `", $wire, "`.")]
        pub fn $setter(mut self, change: impl FnOnce($of) -> $of) -> Self {
            self.0.push($wire, change);
            self
        }
    };
    ($setter:ident entries($of:ty) $wire:literal) => {
        #[doc = concat!("Changes the entry of `", $wire, "` with this key.")]
        pub fn $setter(mut self, key: impl Into<String>, change: impl FnOnce($of) -> $of) -> Self {
            self.0.entry($wire, key.into(), change);
            self
        }
    };
    ($setter:ident keyed($of:ty, $($key:ident $key_wire:literal $key_of:ident),+) $wire:literal) => {
        #[doc = concat!("Changes the item of `", $wire, "` with this key.")]
        pub fn $setter(
            mut self,
            $($key: impl Into<$crate::setters::rust!($key_of)>,)+
            change: impl FnOnce($of) -> $of,
        ) -> Self {
            $(
                let $key: $crate::setters::rust!($key_of) = $key.into();
                let $key = ($key_wire, $crate::setters::json!($key_of $key));
            )+
            self.0.item($wire, [$($key),+], change);
            self
        }
    };
    ($setter:ident $kind:ident $wire:literal) => {
        #[doc = concat!("Sets `", $wire, "`.")]
        pub fn $setter(mut self, value: impl Into<$crate::setters::rust!($kind)>) -> Self {
            let value: $crate::setters::rust!($kind) = value.into();
            self.0.set($wire, $crate::setters::json!($kind value));
            self
        }
    };
}

/// The Rust type of a kind of value.
#[rustfmt::skip]
macro_rules! rust {
    (str) => { String };
    (int32) => { i32 };
    (int64) => { i64 };
    (num) => { f64 };
    (bool) => { bool };
    (int_or_string) => { $crate::value::NumberOrText };
    (quantity) => { $crate::value::QuantityText };
    (bytes) => { $crate::value::Base64 };
    (strings) => { Vec<String> };
    (time) => { k8s_openapi::apimachinery::pkg::apis::meta::v1::Time };
    (micro_time) => { k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime };
    (any) => { serde_json::Value };
}

/// A value as JSON.
macro_rules! json {
    (time $value:expr) => {
        // A time is serialized as a string, which cannot fail.
        serde_json::to_value(&$value).unwrap_or_default()
    };
    (micro_time $value:expr) => {
        $crate::setters::json!(time $value)
    };
    ($kind:ident $value:expr) => {
        serde_json::Value::from($value)
    };
}

/// Names the partials of types of `k8s-openapi`.
macro_rules! of_types {
    ($($module:ident)::+ { $($name:ident)* }) => {
        const _: () = {
            use $($module)::+ as types;
            $(impl $crate::HasPartial for types::$name {
                type Partial = $name;
            })*
        };
    };
}

pub(crate) use {json, of_types, partials, rust, setter};
