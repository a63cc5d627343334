//! Texts of panics.

use std::any::Any;

/// The message of a caught panic. `a panic without a message` if its payload is no text.
///
/// ```
/// let panic = std::panic::catch_unwind(|| panic!("no {}", 1)).unwrap_err();
/// assert_eq!(setpoint_object::panic::message(&*panic), "no 1");
/// ```
pub fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message")
}
