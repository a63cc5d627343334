//! How a cache holds its objects.

/// What a cache keeps of each object. Every policy has the same API; they differ in memory and in the cost of a read.
///
/// | policy    | memory per object             | [`Object::get`](crate::Object::get) | metadata without `get` |
/// |-----------|-------------------------------|-------------------------------------|------------------------|
/// | `Compact` | its JSON                      | decodes every time                  | a skim of the JSON     |
/// | `Decoded` | its Rust value                | a reference count                   | borrowed from the value |
///
/// An object that cannot be decoded as `K` is kept as JSON under either policy, so that one bad object hides no other:
/// its [`Object::get`](crate::Object::get) says what is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CachePolicy {
    /// The encoded object, decoded at each `get`. A typed Pod is six times the size of its JSON.
    #[default]
    Compact,
    /// The decoded object behind an `Arc`, decoded once when it enters the cache. What client-go does.
    Decoded,
}
