//! Expressions that select devices, compiled once.

use super::device::Device;
use parking_lot::Mutex;
use setpoint_cel::device::{Selector, SelectorError};
use setpoint_object::bounded::{self, LruCache};
use std::sync::Arc;

/// How many compiled expressions are kept. Claims of one template, and classes, share them.
const KEPT_MAX: usize = 256;
/// How much cost of an expression is one step of a search: about as long as it takes to look at a
/// device.
const COST_PER_STEP: u64 = 4;

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
    fn get(&self, expression: &Arc<str>) -> Compiled {
        if let Some(found) = self.0.lock().get(expression) {
            return found.clone();
        }
        // Not under the lock: two may compile the same.
        let compiled = Arc::new(Selector::new(expression).map(|(selector, _)| selector));
        self.0.lock().put(expression.clone(), compiled.clone());
        compiled
    }

    /// Whether all expressions select a device. `whose` are they: `class x`, `claim n/x`. Counts
    /// steps.
    ///
    /// # Errors
    ///
    /// One that cannot be evaluated, as kube-scheduler words it.
    pub(super) fn select(
        &self,
        expressions: &[Option<Arc<str>>],
        device: &Device,
        whose: impl Fn() -> String,
        steps: &mut u64,
    ) -> Result<bool, String> {
        for (idx, expression) in expressions.iter().enumerate() {
            let Some(expression) = expression else { return Ok(false) };
            let compiled = self.get(expression);
            let selector = compiled.as_ref().as_ref();
            let selector = selector.map_err(|error| {
                format!("{}: selector #{idx}: CEL compile error: {error}", whose())
            })?;
            let fault =
                |error: &str| format!("{}: selector #{idx}: CEL runtime error: {error}", whose());
            let seen = device.seen.as_ref().map_err(|error| fault(error))?;
            let (selects, cost) = selector.selects(seen);
            *steps = steps.saturating_add(1 + cost / COST_PER_STEP);
            if !selects.map_err(|error| fault(&error))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
