//! Names and their validation (spec: api-server §12). Each check returns the messages the API gives, empty when valid.
/// RFC 1123 subdomain, at most 253 characters.
pub fn dns1123_subdomain(_name: &str) -> Vec<String> {
    todo!()
}
/// RFC 1123 label, at most 63.
pub fn dns1123_label(_name: &str) -> Vec<String> {
    todo!()
}
/// RFC 1035 label, at most 63.
pub fn dns1035_label(_name: &str) -> Vec<String> {
    todo!()
}
/// Path segment.
pub fn path_segment(_name: &str) -> Vec<String> {
    todo!()
}
/// Qualified name: `[prefix/]name`.
pub fn qualified_name(_name: &str) -> Vec<String> {
    todo!()
}
/// Label value.
pub fn label_value(_value: &str) -> Vec<String> {
    todo!()
}
/// ConfigMap and Secret key.
pub fn config_key(_key: &str) -> Vec<String> {
    todo!()
}
/// The characters of generated suffixes.
pub const GENERATED_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// The base is cut to this many characters before the suffix of five.
pub const GENERATE_NAME_BASE_MAX: usize = 58;
