//! How a cache holds its objects.

/// What a cache keeps of each object. Every policy has the same API; they differ in memory and in
/// the cost of a read.
///
/// | policy       | memory per object                | [`Object::get`](crate::Object::get) | metadata without `get`   |
/// |--------------|----------------------------------|-------------------------------------|--------------------------|
/// | `Compact`    | its JSON and about 200 bytes     | decodes                             | a skim of the JSON       |
/// | `Compressed` | a tenth of its JSON, and 250     | unpacks and decodes                 | unpacks and skims        |
/// | `Metadata`   | its metadata packed, and 250     | unpacks and decodes the metadata    | unpacks and skims        |
/// | `Decoded`    | its Rust value                   | a reference count                   | borrowed from the value  |
///
/// An object that cannot be decoded as `K` is kept as JSON under every policy, so that one bad
/// object hides no other: its [`Object::get`](crate::Object::get) says what is wrong with it. What
/// was read stays decoded as long as it is read and there is room
/// ([`DECODED_BYTES`](crate::DECODED_BYTES)): reading that again costs what it costs under
/// `Decoded`. A type that declares a part of an object pays for that part: the rest is skipped.
/// With more room than all objects take decoded, `Compact` reads like `Decoded` and does not decode
/// what nobody reads.
///
/// Under all policies but `Decoded` one cache serves readers of any type; under that it holds the
/// values of one, and readers of others need a cache of their own.
///
/// `managedFields` are kept, except under `Metadata`: whoever does not read them saves a third by
/// [`SharedInformerBuilder::prune`](crate::SharedInformerBuilder::prune).
///
/// # Packing
///
/// With the crate feature `compressed`, `Compressed` and `Metadata` pack with zstd and a dictionary
/// of at most 64 KiB, made once of the first 256 objects, or as many as make up 1 MiB. Until there
/// are so many all are kept plain, and then packed: a cache of fewer stays plain. An object that
/// does not get smaller stays plain. Without the feature there is no `Compressed`, and `Metadata`
/// keeps its JSON plain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CachePolicy {
    /// The encoded object, decoded when it is read. A typed Pod is six times the size of its JSON.
    #[default]
    Compact,
    /// The encoded object, packed. With the crate feature `compressed`.
    #[cfg(feature = "compressed")]
    Compressed,
    /// Only `apiVersion`, `kind` and `metadata` without `managedFields`, packed. For
    /// [`PartialObjectMeta`](kube_core::metadata::PartialObjectMeta) and dynamic types, with a
    /// source that asks the server for no more, or with one that sends whole objects.
    ///
    /// Of a type like `Pod` [`get`](crate::Object::get) gives what an answer without `spec` and
    /// `status` decodes to: they are empty, whatever the server holds, and
    /// [`is_partial`](crate::Object::is_partial) says so. A type that cannot be without them does
    /// not decode.
    Metadata,
    /// The decoded object behind an `Arc`, decoded once when it enters the cache. What client-go
    /// does.
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
