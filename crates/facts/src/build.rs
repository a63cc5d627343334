//! Constructors that the generated tables use: one call for the common members of a field, chained
//! calls for the rest. Evaluated at compile time.

use crate::{Facts, Field, Presence, Type};

/// A field with its facts.
pub(crate) const fn field(name: &'static str, facts: &'static Facts) -> Field {
    Field { name, facts }
}

/// Facts of a field without list type, patch metadata, default or format.
pub(crate) const fn of(ty: Type, presence: Presence, order: u8) -> Facts {
    Facts {
        ty,
        list_type: "",
        list_map_keys: &[],
        atomic: false,
        granular: false,
        patch_strategy: "",
        merge_key: "",
        default: "",
        format: "",
        presence,
        order,
        protobuf: &[],
    }
}

impl Facts {
    pub(crate) const fn format(self, format: &'static str) -> Self {
        Self { format, ..self }
    }
    pub(crate) const fn list(
        self,
        list_type: &'static str,
        list_map_keys: &'static [&'static str],
    ) -> Self {
        Self { list_type, list_map_keys, ..self }
    }
    pub(crate) const fn map_type(self, map_type: &'static str) -> Self {
        // `const fn` cannot compare strings; the two values differ in their first byte.
        let atomic = matches!(map_type.as_bytes(), [b'a', ..]);
        Self { atomic, granular: !atomic, ..self }
    }
    pub(crate) const fn patch(self, patch_strategy: &'static str, merge_key: &'static str) -> Self {
        Self { patch_strategy, merge_key, ..self }
    }
    pub(crate) const fn protobuf(self, protobuf: &'static [u8]) -> Self {
        Self { protobuf, ..self }
    }
    pub(crate) const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }
}
