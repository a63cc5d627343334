//! Errors of any kind, and how they read.

use std::error::Error;

/// Any error, owned.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// An error with its causes, joined as a sentence for a log.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// An error, its cause, its cause's cause …
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error: &&'a (dyn Error + 'static)| error.source())
}

/// What a panic said, if it said it in words.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    match (panic.downcast_ref::<&'static str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "something that is no text".to_owned(),
    }
}
