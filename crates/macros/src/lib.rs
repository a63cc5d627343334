//! Macros: tests with a control plane, and partials of custom types.
//!
//! # Theory
//!
//! `#[setpoint::test]` turns an asynchronous function of a `&TestEnv` into a test of the standard
//! harness. It only generates the call. `setpoint-testenv` provides the test environment, its
//! runtime and the output of failures, and documents the attribute.
//!
//! `#[derive(Partial)]` generates a type with a setter per field, for server-side apply.
//! `setpoint-apply` has the traits that it implements.

mod partial;

use proc_macro::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{DeriveInput, Expr, Ident, ItemFn, LitInt, Path, Token, parse_macro_input, parse_quote};

/// The arguments in the brackets.
struct Options {
    real_time: bool,
    seed: Expr,
    seeds: Expr,
    krate: Path,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut options = Self {
            real_time: false,
            seed: parse_quote!(0),
            seeds: parse_quote!(1),
            krate: parse_quote!(::setpoint::testenv),
        };
        while !input.is_empty() {
            if input.peek(Token![crate]) {
                input.parse::<Token![crate]>()?;
                input.parse::<Token![=]>()?;
                options.krate = input.parse()?;
            } else {
                let name: Ident = input.parse()?;
                let number = |input: ParseStream<'_>| -> syn::Result<Expr> {
                    input.parse::<Token![=]>()?;
                    let number: LitInt = input.parse()?;
                    number.base10_parse::<u64>()?;
                    Ok(parse_quote!(#number))
                };
                match name.to_string().as_str() {
                    "real_time" => options.real_time = true,
                    "seed" => options.seed = number(input)?,
                    "seeds" => options.seeds = number(input)?,
                    _ => {
                        let text =
                            "expected `real_time`, `seed = N`, `seeds = N` or `crate = path`";
                        return Err(syn::Error::new(name.span(), text));
                    }
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

/// Makes a test of an asynchronous function with one parameter, `&TestEnv`, or none.
///
/// | option | effect |
/// |---|---|
/// | none | virtual time, seed 0: the test behaves the same each time |
/// | `real_time` | the wall clock, and the operating system's entropy |
/// | `seed = N` | another seed |
/// | `seeds = N` | the test runs with `N` seeds, from `seed` on |
/// | `crate = path` | the path of the `testenv` module; default `::setpoint::testenv` |
///
/// The environment variable `SEED` selects one seed, to replay a failure. The function may return
/// `()` or a `Result`.
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    let Options { real_time, seed, seeds, krate } = parse_macro_input!(options as Options);
    let function = parse_macro_input!(item as ItemFn);
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        let error = syn::Error::new_spanned(signature, "the function must be `async`");
        return error.to_compile_error().into();
    }
    if signature.inputs.len() > 1 {
        let text = "the function takes one parameter, `&TestEnv`, or none";
        return syn::Error::new_spanned(&signature.inputs, text).to_compile_error().into();
    }
    let (name, output, attributes) = (&signature.ident, &signature.output, &function.attrs);
    let call = match signature.inputs.is_empty() {
        true => quote!(#name()),
        false => quote!(#name(env)),
    };
    let inner = ItemFn { attrs: Vec::new(), ..function.clone() };
    quote! {
        #[::core::prelude::v1::test]
        #(#attributes)*
        fn #name() #output {
            #inner
            let settings = #krate::TestSettings {
                name: ::core::concat!(::core::module_path!(), "::", ::core::stringify!(#name)),
                package: ::core::env!("CARGO_PKG_NAME"),
                real_time: #real_time,
                seed: #seed,
                seeds: #seeds,
            };
            #krate::run_test(settings, |env| {
                let _ = env;
                ::std::boxed::Box::pin(#call)
            })
        }
    }
    .into()
}

/// Generates the partial of a struct: typed setters for server-side apply.
///
/// For a struct `Spec` it is `SpecPartial`. Each field has a setter of its name, documented as the
/// field is; names on the wire are those of serde.
///
/// | field | setter |
/// |---|---|
/// | `String`, `Option<String>` | takes `impl Into<String>` |
/// | any other type `T`, `Option<T>`, `Box<T>` | takes a `T`. Its members that are not null are all claimed |
/// | the same with `#[partial(nested)]` | takes a closure that changes the partial of `T`, which derives `Partial` or is built-in |
/// | `Vec<T>` with `#[partial(nested)]` | takes a closure, and adds an item |
/// | `Vec<T>` with `#[partial(key = "name")]` | takes a key and a closure, and changes the item whose member `name` is the key: for a list of type `map` |
/// | skipped by serde | none |
///
/// With `#[kube(kind = "Site", status = "SiteStatus")]` of `#[derive(CustomResource)]`, the kind
/// has a partial too: `SitePartial`, with setters `spec` and `status`. The status derives
/// `Partial`.
///
/// `#[partial(crate = path)]` on the struct is the path of `setpoint::apply`.
#[proc_macro_derive(Partial, attributes(partial))]
pub fn derive_partial(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    partial::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
