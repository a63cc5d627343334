//! Expressions that select devices: what they refer to, and a device as they see it.
//!
//! ResourceClaims and DeviceClasses have such expressions. They are compiled when these are
//! written, and run when devices are allocated.

use crate::check::{Checked, Env, check};
use crate::eval::{Context, EXPRESSION_COST_MAX, Error, Program};
use crate::library;
use crate::macros::Macros;
use crate::parse::parse;
use crate::types::Type;
use crate::value::{Key, Map, Value};
use indexmap::IndexMap;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// The variable of expressions: one device.
pub const DEVICE: &str = "device";

/// What expressions may refer to, by features of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// Whether devices have the member `allowMultipleAllocations` (`DRAConsumableCapacity`).
    pub shares: bool,
    /// Whether attributes may be lists, which have the function `includes`
    /// (`DRAListTypeAttributes`).
    pub lists: bool,
}

/// As by default in Kubernetes 1.36.
impl Default for Scope {
    fn default() -> Self {
        Self { shares: true, lists: false }
    }
}

impl Scope {
    /// The environment of its expressions, which is made once.
    fn env(self) -> &'static Env {
        static ENVS: LazyLock<[Env; 4]> = LazyLock::new(|| {
            let scope = |shares, lists| Scope { shares, lists }.make_env();
            [scope(false, false), scope(true, false), scope(false, true), scope(true, true)]
        });
        &ENVS[usize::from(self.shares) + 2 * usize::from(self.lists)]
    }

    fn make_env(self) -> Env {
        let by_name = |ty: Type| Type::Map(Arc::new(Type::String), Arc::new(ty));
        let attribute = if self.lists { Type::Dyn } else { Type::Any };
        let fields = [
            ("driver", Type::String),
            ("attributes", by_name(by_name(attribute))),
            ("capacity", by_name(by_name(Type::QUANTITY))),
        ];
        let shares = self.shares.then_some(("allowMultipleAllocations", Type::Bool));
        let fields: BTreeMap<_, _> =
            fields.into_iter().chain(shares).map(|(name, ty)| (name.to_owned(), ty)).collect();
        let env = if self.lists { Env::devices() } else { Env::kubernetes() };
        env.variable(DEVICE, Type::object("kubernetes.DRADevice", fields))
    }
}

/// An expression that selects devices.
#[derive(Debug)]
pub struct Selector(Program);

/// Why an expression does not select devices. Displays as Kubernetes' text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorError {
    /// It is no expression, or has another type.
    #[error("{0}")]
    Invalid(String),
    /// A constant in it has no value, which Kubernetes reports as an internal error.
    #[error("{0}")]
    Internal(String),
}

/// Why it is not known whether an expression selects a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectionError {
    /// The caller's budget does not suffice. More may.
    #[error("the budget does not suffice")]
    OutOfBudget,
    /// The evaluation failed. Displays as Kubernetes' text.
    #[error("{0}")]
    Failed(String),
}

impl Selector {
    /// Compiles an expression. Also returns its tree, for an estimate of its cost.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn new(expression: &str, scope: Scope) -> Result<(Self, Checked), SelectorError> {
        let macros = Macros { bind: true, ..Macros::KUBERNETES };
        let checked = parse(expression, &macros)
            .and_then(|ast| check(ast, scope.env()))
            .map_err(|issues| SelectorError::Invalid(format!("compilation failed: {issues}")))?;
        let ty = checked.result_type();
        let is_unknown = *ty == Type::Any || scope.lists && *ty == Type::Dyn;
        if *ty != Type::Bool && !is_unknown {
            let text = format!("must evaluate to bool or the unknown type, not {}", ty.declared());
            return Err(SelectorError::Invalid(text));
        }
        let program = Program::new(&checked).instantiated();
        Ok((Self(program.map_err(SelectorError::Internal)?), checked))
    }

    /// Whether it selects a device. An evaluation costs at most [`EXPRESSION_COST_MAX`], and what
    /// it costs is taken from `budget`.
    ///
    /// # Errors
    ///
    /// See [`SelectionError`]. If the budget does not suffice, nothing is left of it.
    pub fn selects(&self, device: &Device, budget: &mut u64) -> Result<bool, SelectionError> {
        let limit = EXPRESSION_COST_MAX.min(*budget);
        let mut context = Context::new(limit);
        let value = self.0.evaluate(&mut context, &[(DEVICE, device.0.clone())]);
        *budget = budget.saturating_sub(context.cost());
        match value {
            Ok(Value::Bool(selects)) => Ok(selects),
            Ok(other) => Err(SelectionError::Failed(format!(
                "CEL result of type {} could not be converted to bool: unsupported native conversion from {} to 'bool'",
                other.type_name(),
                other.type_name(),
            ))),
            Err(Error::CostLimit) if limit < EXPRESSION_COST_MAX => {
                *budget = 0;
                Err(SelectionError::OutOfBudget)
            }
            Err(error) => Err(SelectionError::Failed(error.to_string())),
        }
    }
}

/// An attribute of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attribute {
    /// A whole number.
    Int(i64),
    /// A truth value.
    Bool(bool),
    /// A text.
    Text(String),
    /// A semantic version.
    Version(String),
}

/// A device as expressions see it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Device(Value<'static>);

impl Device {
    /// A device of a driver. The names of attributes and of capacities, which are quantities, may
    /// begin with a domain and a slash; otherwise the domain is the driver's. An attribute whose
    /// value is of no known type is `None`.
    ///
    /// # Errors
    ///
    /// A value that expressions cannot see, in Kubernetes' words.
    pub fn new<'a>(
        driver: &str,
        allows_multiple: bool,
        attributes: impl IntoIterator<Item = (&'a str, Option<&'a Attribute>)>,
        capacity: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, String> {
        let mut found = Domains::default();
        for (name, attribute) in attributes {
            let value = match attribute {
                Some(Attribute::Int(number)) => Value::Int(*number),
                Some(Attribute::Bool(is_so)) => Value::Bool(*is_so),
                Some(Attribute::Text(text)) => Value::from(text.clone()),
                Some(Attribute::Version(text)) => {
                    library::semver::value(text).map_err(|error| {
                        format!("attribute {name}: parse semantic version: {error}")
                    })?
                }
                None => return Err(format!("attribute {name}: unsupported attribute value")),
            };
            found.add(name, driver, value);
        }
        let mut capacities = Domains::default();
        for (name, amount) in capacity {
            let value = library::quantity::value(amount)
                .map_err(|error| format!("capacity {name}: {error}"))?;
            capacities.add(name, driver, value);
        }
        let members = [
            ("driver", Value::from(driver.to_owned())),
            ("allowMultipleAllocations", Value::Bool(allows_multiple)),
            ("attributes", found.into_value()),
            ("capacity", capacities.into_value()),
        ];
        let members = members.into_iter().map(|(name, value)| (Key::String(name.into()), value));
        Ok(Self(members.collect::<IndexMap<_, _>>().into()))
    }
}

/// Values by their domains and names.
#[derive(Default)]
struct Domains(IndexMap<Key, IndexMap<Key, Value<'static>>>);

impl Domains {
    fn add(&mut self, name: &str, driver: &str, value: Value<'static>) {
        let (domain, id) = name.split_once('/').unwrap_or((driver, name));
        let names = self.0.entry(Key::String(domain.into())).or_default();
        names.insert(Key::String(id.into()), value);
    }

    /// A map in which each other domain is empty, so that expressions need not look for domains.
    fn into_value(self) -> Value<'static> {
        let domains = self.0.into_iter().map(|(domain, names)| (domain, names.into())).collect();
        Value::Map(Map::with_default(domains, IndexMap::new().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> Device {
        let attributes = [
            ("model", Attribute::Text("a100".to_owned())),
            ("other.example.com/numa", Attribute::Int(1)),
            ("fast", Attribute::Bool(true)),
            ("version", Attribute::Version("1.2.3".to_owned())),
        ];
        let attributes = attributes.iter().map(|(name, value)| (*name, Some(value)));
        Device::new("gpu.example.com", false, attributes, [("memory", "40Gi")]).unwrap()
    }

    fn selects(expression: &str) -> Result<bool, String> {
        let (selector, _) =
            Selector::new(expression, Scope::default()).map_err(|error| error.to_string())?;
        selector.selects(&device(), &mut u64::MAX.clone()).map_err(|error| error.to_string())
    }

    #[test]
    fn an_evaluation_takes_its_cost_from_the_budget() {
        let domains = "device.attributes.all(a, device.attributes.all(b, a != b || a == b))";
        let (selector, _) = Selector::new(domains, Scope::default()).unwrap();
        let mut budget = 10;
        let spent = selector.selects(&device(), &mut budget);
        assert_eq!((spent, budget), (Err(SelectionError::OutOfBudget), 0));
        budget = 1000;
        assert_eq!(selector.selects(&device(), &mut budget), Ok(true));
        assert!((1..990).contains(&budget), "{budget}");
    }

    #[test]
    fn expressions_see_a_device() {
        for (expression, is_selected) in [
            ("device.driver == 'gpu.example.com'", true),
            ("device.attributes['gpu.example.com'].model == 'a100'", true),
            ("device.attributes['other.example.com'].numa > 1", false),
            ("device.attributes['gpu.example.com'].fast", true),
            ("device.attributes['gpu.example.com'].version.isLessThan(semver('2.0.0'))", true),
            ("device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0", true),
            ("device.allowMultipleAllocations", false),
            ("has(device.attributes['gpu.example.com'].nothing)", false),
            // A domain without values is empty, and is not among the domains.
            ("has(device.attributes['none.example.com'].model)", false),
            ("'none.example.com' in device.attributes", false),
            ("'gpu.example.com' in device.attributes", true),
            ("device.attributes.exists(domain, domain == 'other.example.com')", true),
            (
                "cel.bind(d, device.attributes['gpu.example.com'], d.fast && d.model == 'a100')",
                true,
            ),
        ] {
            assert_eq!(selects(expression), Ok(is_selected), "{expression}");
        }
    }

    #[test]
    fn expressions_know_what_a_scope_has() {
        let compiles = |expression: &str, scope: Scope| Selector::new(expression, scope).is_ok();
        let [plain, lists] = [false, true].map(|lists| Scope { lists, ..Scope::default() });
        for expression in [
            "device.attributes['a.b'].modes.includes('x')",
            "device.attributes['a.b'].modes.exists(mode, mode == 'x')",
        ] {
            assert!(compiles(expression, lists) && !compiles(expression, plain), "{expression}");
        }
        let shared = "device.allowMultipleAllocations";
        assert!(compiles(shared, plain) && !compiles(shared, Scope { shares: false, ..plain }));

        let selects = |expression: &str| {
            let (selector, checked) = Selector::new(expression, lists).unwrap();
            assert_eq!(*checked.result_type(), Type::Bool);
            selector.selects(&device(), &mut u64::MAX.clone())
        };
        for (expression, expected) in [
            ("device.attributes['gpu.example.com'].model.includes('a100')", true),
            ("['a', device.driver].includes('gpu.example.com')", true),
            ("device.driver.includes('gpu')", false),
            ("[1, 2].includes('1')", false),
        ] {
            assert_eq!(selects(expression), Ok(expected), "{expression}");
        }
        let long = format!("[{}1].includes(2)", "1, ".repeat(48));
        let error = selects(&long).unwrap_err().to_string();
        assert_eq!(error, "'includes' function cannot be applied to lists longer than 48 values");
    }

    #[test]
    fn faults_are_told() {
        let error = selects("device.attributes['gpu.example.com'].nothing == 1").unwrap_err();
        assert_eq!(error, "no such key: nothing");
        let error = selects("device.attributes['gpu.example.com'].model").unwrap_err();
        assert!(error.contains("could not be converted to bool"), "{error}");
        let error = selects("device.driver").unwrap_err();
        assert_eq!(error, "must evaluate to bool or the unknown type, not string");
        let error = selects("[duration('1s')]").unwrap_err();
        let found = "list(google.protobuf.Duration)";
        assert_eq!(error, format!("must evaluate to bool or the unknown type, not {found}"));
        for (expression, fault) in [
            ("device.driver.matches('[')", "compilation failed: "),
            ("int('x') == 1", "program instantiation failed: "),
        ] {
            let error = Selector::new(expression, Scope::default()).unwrap_err().to_string();
            assert!(error.starts_with(fault), "{error}");
        }
        let error = Device::new("d", false, [("list", None)], []).unwrap_err();
        assert_eq!(error, "attribute list: unsupported attribute value");
    }
}
