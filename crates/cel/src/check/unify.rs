//! Which types fit, and what type parameters stand for.

use std::sync::Arc;

use crate::types::{Param, Type};

/// The known bindings of type parameters.
#[derive(Debug, Default)]
pub(super) struct Substitutions {
    /// By the number of the parameter.
    bound: Vec<Option<Type>>,
    /// Earlier bindings, newest last, to return to when types do not fit.
    trail: Vec<(u32, Option<Type>)>,
}

impl Substitutions {
    /// A new free parameter.
    pub(super) fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Param(Param::Free(u32::try_from(self.bound.len() - 1).unwrap_or(u32::MAX)))
    }

    /// Whether a value of `from` may be used as `to`. Binds parameters if so.
    pub(super) fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.all_assignable(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    /// Whether each of `from` may be used as its counterpart. Binds parameters if so.
    pub(super) fn all_assignable(&mut self, from: &[Type], to: &[Type]) -> bool {
        self.trail.clear();
        let fit =
            from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.fits(from, to));
        if !fit {
            while let Some((number, before)) = self.trail.pop() {
                self.bound[number as usize] = before;
            }
        }
        fit
    }

    /// The type with bound parameters replaced; unbound ones stay.
    pub(super) fn substitute(&self, ty: &Type) -> Type {
        self.replaced(ty, false)
    }

    /// The type with bound parameters replaced; unbound ones become dynamic.
    pub(super) fn finish(&self, ty: &Type) -> Type {
        self.replaced(ty, true)
    }

    fn replaced(&self, ty: &Type, unbound_to_dyn: bool) -> Type {
        let again = |ty: &Arc<Type>| Arc::new(self.replaced(ty, unbound_to_dyn));
        match ty {
            Type::Param(param) => match self.find(*param) {
                Some(bound) => self.replaced(bound, unbound_to_dyn),
                None if unbound_to_dyn => Type::Dyn,
                None => ty.clone(),
            },
            Type::List(element) => Type::List(again(element)),
            Type::Map(key, value) => Type::Map(again(key), again(value)),
            Type::Optional(inner) => Type::Optional(again(inner)),
            Type::Type(Some(inner)) => Type::Type(Some(again(inner))),
            _ => ty.clone(),
        }
    }

    fn find(&self, param: Param) -> Option<&Type> {
        match param {
            Param::Free(number) => self.bound.get(number as usize)?.as_ref(),
            Param::Named(_) => None,
        }
    }

    fn bind(&mut self, param: Param, ty: Type) {
        if let Param::Free(number) = param
            && let Some(slot) = self.bound.get_mut(number as usize)
        {
            self.trail.push((number, slot.replace(ty)));
        }
    }

    fn fits(&mut self, from: &Type, to: &Type) -> bool {
        if let Type::Param(param) = to {
            match self.binds(from, *param) {
                Bound::Fits => return true,
                Bound::Differs => return false,
                Bound::Unbound => {}
            }
        }
        if let Type::Param(param) = from {
            return self.binds(to, *param) == Bound::Fits;
        }
        if from.is_dyn_or_error() || to.is_dyn_or_error() {
            return true;
        }
        match (from, to) {
            (Type::Null, other) | (other, Type::Null) => nullable(other),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(from), Type::List(to)) | (Type::Optional(from), Type::Optional(to)) => {
                self.fits(from, to)
            }
            (Type::Map(from_key, from), Type::Map(to_key, to)) => {
                self.fits(from_key, to_key) && self.fits(from, to)
            }
            _ => from == to,
        }
    }

    /// Whether the parameter may stand for `ty`; notes it if nothing speaks against it.
    fn binds(&mut self, ty: &Type, param: Param) -> Bound {
        if *ty == Type::Param(param) {
            return Bound::Fits;
        }
        if let Some(bound) = self.find(param).cloned() {
            if bound == *ty {
                return Bound::Fits;
            }
            if !self.fits(ty, &bound) {
                return Bound::Differs;
            }
            let general = if at_least_as_general(ty, &bound) { ty.clone() } else { bound };
            if self.free_of(param, &general) {
                self.bind(param, general);
            }
            return Bound::Fits;
        }
        if self.free_of(param, ty) {
            self.bind(param, ty.clone());
            return Bound::Fits;
        }
        Bound::Unbound
    }

    /// Whether the parameter does not occur in the type.
    fn free_of(&self, param: Param, ty: &Type) -> bool {
        match ty {
            Type::Param(other) if *other == param => false,
            Type::Param(other) => self.find(*other).is_none_or(|bound| self.free_of(param, bound)),
            Type::List(inner) | Type::Optional(inner) | Type::Type(Some(inner)) => {
                self.free_of(param, inner)
            }
            Type::Map(key, value) => self.free_of(param, key) && self.free_of(param, value),
            _ => true,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    Fits,
    Differs,
    Unbound,
}

/// Whether a value of the type may be `null`.
fn nullable(ty: &Type) -> bool {
    matches!(
        ty,
        Type::Null
            | Type::Optional(_)
            | Type::Opaque(_)
            | Type::Object(_)
            | Type::Duration
            | Type::Timestamp
    )
}

/// Whether the first type is the second one or has `dyn` where the second one is more specific.
pub(super) fn at_least_as_general(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Dyn | Type::Any | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Any | Type::Param(_)) => false,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
            at_least_as_general(a, b)
        }
        (Type::Map(a_key, a), Type::Map(b_key, b)) => {
            at_least_as_general(a_key, b_key) && at_least_as_general(a, b)
        }
        (Type::Type(_), Type::Type(_)) => true,
        _ => a == b,
    }
}
