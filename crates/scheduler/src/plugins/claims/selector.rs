//! Expressions that select devices, compiled once.

use super::device::Device;
use parking_lot::Mutex;
use setpoint_cel::device::{Scope, SelectionError, Selector, SelectorError};
use setpoint_object::bounded::{self, LruCache};
use std::sync::Arc;

/// How many compiled expressions are kept. Claims of one template, and classes, share them.
const KEPT_MAX: usize = 256;
/// How much cost of an expression is one step of a search: about as long as it takes to look at a
/// device.
const COST_PER_STEP: u64 = 4;
/// How many steps it takes to compile a byte of an expression.
const STEPS_PER_BYTE: u64 = 10;
/// What an evaluation may cost on a thread that serves others too: about two milliseconds.
const INLINE_COST_MAX: u64 = 20_000;
/// How long an expression may be that is compiled there.
const INLINE_BYTES_MAX: usize = 512;

/// How much time a search may take now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thread {
    /// A few milliseconds: the thread serves others too.
    Shared,
    /// As much as the steps that are left.
    Own,
}

/// Why it is not known whether expressions select a device.
#[derive(Debug)]
pub(super) enum Unknown {
    /// It takes a thread of its own.
    Costly,
    /// No steps are left.
    Spent,
    /// One cannot be evaluated, as kube-scheduler words it.
    Fault(String),
}

/// A compiled expression, or why it does not compile.
type Compiled = Arc<Result<Selector, SelectorError>>;

/// Compiled expressions. Clones share them.
#[derive(Clone)]
pub(super) struct Selectors(Arc<Mutex<LruCache<Arc<str>, Compiled>>>);

impl Default for Selectors {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(bounded::lru(KEPT_MAX))))
    }
}

impl std::fmt::Debug for Selectors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Selectors").field("len", &self.0.lock().len()).finish()
    }
}

impl Selectors {
    fn get(
        &self,
        expression: &Arc<str>,
        thread: Thread,
        steps: &mut u64,
    ) -> Result<Compiled, Unknown> {
        if let Some(found) = self.0.lock().get(expression) {
            return Ok(found.clone());
        }
        if thread == Thread::Shared && expression.len() > INLINE_BYTES_MAX {
            return Err(Unknown::Costly);
        }
        *steps = steps.saturating_add(STEPS_PER_BYTE * expression.len() as u64);
        // Not under the lock: two may compile the same.
        let compiled =
            Arc::new(Selector::new(expression, Scope::default()).map(|(selector, _)| selector));
        self.0.lock().put(expression.clone(), compiled.clone());
        Ok(compiled)
    }

    /// Whether all expressions select a device. `whose` are they: `class x`, `claim n/x`. Counts
    /// steps, of which `steps_max` are left.
    ///
    /// # Errors
    ///
    /// See [`Unknown`].
    pub(super) fn select(
        &self,
        expressions: &[Option<Arc<str>>],
        device: &Device,
        whose: impl Fn() -> String,
        (thread, steps_max): (Thread, u64),
        steps: &mut u64,
    ) -> Result<bool, Unknown> {
        for (idx, expression) in expressions.iter().enumerate() {
            let Some(expression) = expression else { return Ok(false) };
            let compiled = self.get(expression, thread, steps)?;
            let selector = compiled.as_ref().as_ref();
            let selector = selector.map_err(|error| {
                Unknown::Fault(format!("{}: selector #{idx}: CEL compile error: {error}", whose()))
            })?;
            let fault = |error: &dyn std::fmt::Display| {
                Unknown::Fault(format!("{}: selector #{idx}: CEL runtime error: {error}", whose()))
            };
            let seen = device.seen.as_ref().map_err(|error| fault(error))?;
            let left = steps_max.saturating_sub(*steps).saturating_mul(COST_PER_STEP);
            let inline = if thread == Thread::Shared { INLINE_COST_MAX } else { u64::MAX };
            let before = left.min(inline);
            let mut budget = before;
            let selects = selector.selects(seen, &mut budget);
            *steps = steps.saturating_add(1 + (before - budget) / COST_PER_STEP);
            match selects {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(SelectionError::OutOfBudget) if left > inline => return Err(Unknown::Costly),
                Err(SelectionError::OutOfBudget) => return Err(Unknown::Spent),
                Err(error) => return Err(fault(&error)),
            }
        }
        Ok(true)
    }
}
