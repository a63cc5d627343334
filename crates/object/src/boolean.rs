//! Booleans as text: in flags, queries, annotations and CEL.

/// The value of a text as Go's `strconv.ParseBool` has it. `None`: it is neither.
///
/// ```
/// use setpoint_object::boolean::parse;
///
/// assert_eq!(["true", "T", "0", "yes"].map(parse), [Some(true), Some(true), Some(false), None]);
/// ```
pub fn parse(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
