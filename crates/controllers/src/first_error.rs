//! The first error of steps that do not keep each other.

/// Collects results of independent steps: each runs, whatever the others did, and the first error
/// is returned at the end.
#[derive(Debug)]
#[must_use]
pub(crate) struct FirstError<E>(Option<E>);

impl<E> FirstError<E> {
    pub(crate) fn new() -> Self {
        Self(None)
    }

    /// Notes the result of a step. Returns its value.
    pub(crate) fn note<T>(&mut self, result: Result<T, E>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.0.get_or_insert(error);
                None
            }
        }
    }

    /// Whether a step has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.is_some()
    }

    /// The first error.
    pub(crate) fn into_result(self) -> Result<(), E> {
        self.0.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_steps_are_noted_and_the_first_error_is_returned() {
        let mut errors = FirstError::new();
        let steps = [Ok(1), Err("first"), Ok(2), Err("second")];
        let done: Vec<_> = steps.into_iter().filter_map(|step| errors.note(step)).collect();
        assert_eq!((done, errors.has_failed()), (vec![1, 2], true));
        assert_eq!(errors.into_result(), Err("first"));
        assert_eq!(FirstError::<&str>::new().into_result(), Ok(()));
    }
}
