//! Boolean flags, as kube-apiserver reads them: `--x`, `--x=true` and `--x=0`.

/// Parses the value of a boolean flag.
pub(crate) fn boolean(text: &str) -> Result<bool, String> {
    setpoint::object::boolean::parse(text).ok_or_else(|| "give true or false".to_owned())
}
