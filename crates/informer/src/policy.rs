//! How a cache stores its objects.

/// How a cache stores each object. All policies have the same API; they differ in memory and in the
/// cost of a read.
///
/// | policy       | memory per object                | [`Object::get`](crate::Object::get) | metadata without `get`   |
/// |--------------|----------------------------------|-------------------------------------|--------------------------|
/// | `Compact`    | its JSON and about 200 bytes     | decodes                             | a skim of the JSON       |
/// | `Compressed` | a tenth of its JSON, and 250     | unpacks and decodes                 | unpacks and skims        |
/// | `Metadata`   | its metadata packed, and 250     | unpacks and decodes the metadata    | unpacks and skims        |
/// | `Decoded`    | its Rust value                   | a reference count                   | borrowed from the value  |
///
/// An object that cannot be decoded as `K` is stored as JSON under every policy, so that it does
/// not hide others; its [`Object::get`](crate::Object::get) returns the error. Recently read values
/// stay decoded, up to [`DECODED_BYTES`](crate::DECODED_BYTES). Reading them again costs as much as
/// under `Decoded`. A type that declares only some fields of an object pays only for these. If all
/// values fit, `Compact` reads as fast as `Decoded`, and never decodes objects that are not read.
///
/// A cache serves readers of any type, except under `Decoded`: that holds values of one type, and
/// readers of other types need caches of their own.
///
/// `managedFields` are not stored, unless
/// [`keep_managed_fields`](crate::SharedInformerBuilder::keep_managed_fields) is set.
///
/// # Packing
///
/// With the crate feature `compressed`, `Compressed` and `Metadata` pack with zstd and a dictionary
/// of at most 64 KiB, trained once on the first 256 objects or on 1 MiB of them. Until then objects
/// are stored as plain JSON, so a small cache stays plain; then they are packed. An object that
/// does not get smaller stays plain. Without the feature there is no `Compressed`, and `Metadata`
/// stores plain JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CachePolicy {
    /// The encoded object, decoded on a read. A typed Pod is six times as large as its JSON.
    #[default]
    Compact,
    /// The encoded object, packed. With the crate feature `compressed`.
    #[cfg(feature = "compressed")]
    Compressed,
    /// Only `apiVersion`, `kind` and `metadata` without `managedFields`, packed. For
    /// [`PartialObjectMeta`](kube_core::metadata::PartialObjectMeta) and dynamic types. The source
    /// may send whole objects or metadata only.
    ///
    /// For a type like `Pod`, [`get`](crate::Object::get) returns a value with empty `spec` and
    /// `status`, whatever the server has, and [`is_partial`](crate::Object::is_partial) is `true`.
    /// A type that requires these fields does not decode.
    Metadata,
    /// The decoded object behind an `Arc`, decoded once when it is stored, as in client-go.
    Decoded,
}

impl CachePolicy {
    /// Whether objects are packed.
    pub(crate) fn packs(self) -> bool {
        match self {
            #[cfg(feature = "compressed")]
            Self::Compressed => true,
            Self::Metadata => cfg!(feature = "compressed"),
            Self::Compact | Self::Decoded => false,
        }
    }
}
