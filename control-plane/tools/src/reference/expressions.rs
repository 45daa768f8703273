//! The reference of expressions, `docs/expressions.md`.

use postern_compile::expression::{
    Environment, compile_condition,
    listing::{self, ListedAttribute, ListedFunction, ListedMacro, ListedOperator},
};

use super::table::{push, row};

const INTRODUCTION: &str = "\
<!-- Written by `cargo xtask docs` from the tables that expressions are checked with. Do not edit. -->

# Expressions

`when`, the rules of `validate`, keys of `rateLimit` and other parameters of type *CEL expression* are written in the
[Common Expression Language](https://github.com/google/cel-spec). An unknown attribute or function is an error at its column when a
resource is applied. `postern eval 'EXPRESSION' --input FILE` evaluates one without a server.

- **Failure is never false.** An attribute that the request does not have, an entry that a map does not have, or a wrong type makes
  the step fail, and `onFailure` decides. Ask for what may be absent by `has(request.headers.accept)` or, for a name with `-`,
  `'x-api-key' in request.headers`.
- `&&` and `||` need only one side: a failure of the other side does not count if this one decides.
- Time zones, `type(…)` and format strings are not supported.
- Evaluation is charged to the request's budget (`Settings.requestBudgetMs`, 100,000 steps by default, each about 10 ns). The column
  *cost* is the least that its example costs, in steps; text that is searched, compared or made costs more by its length.
";

const OPERATORS: &str = "
## Operators

`==` and `!=` compare values of one type, numbers of any type with each other, and anything with `null`. `in` looks for an element of
a list or a key of a map; `[ ]` takes one. `? :` takes a condition of type bool.

| operator | operands |
|---|---|
";

/// The whole page, as Markdown.
pub fn expressions() -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("\n## Attributes\n\nWhat starts with `response.` exists in response chains alone.\n\n");
    page.push_str("| attribute | type | meaning | example | cost |\n|---|---|---|---|---|\n");
    for ListedAttribute { attribute, example } in listing::attributes() {
        let (name, of) = (format!("`{}`", attribute.name()), attribute.value_type().name());
        row(&mut page, &[&name, of, attribute.about().trim(), &format!("`{example}`"), &cost(example)]);
    }
    page.push_str("\n## Functions\n\n| function | calls | returns | example, which is true |\n|---|---|---|---|\n");
    for ListedFunction { name, signatures, about, example } in listing::functions() {
        row(&mut page, &[&format!("`{name}`"), &signatures.join("<br>"), about, &format!("`{example}`")]);
    }
    page.push_str("\n## Macros\n\n| macro | returns | example, which is true |\n|---|---|---|\n");
    for ListedMacro { form, about, example } in listing::MACROS {
        row(&mut page, &[&format!("`{form}`"), about, &format!("`{example}`")]);
    }
    page.push_str(OPERATORS);
    for ListedOperator { name, signatures } in listing::operators() {
        row(&mut page, &[&format!("`{name}`"), &signatures.join("<br>")]);
    }
    push(&mut page, format_args!("\nAn expression has at most {} bytes.\n", postern_compile::expression::MAX_LENGTH));
    page
}

/// The least that a condition costs, in steps.
fn cost(example: &str) -> String {
    compile_condition(example, Environment::Response).map_or_else(|_| String::new(), |it| it.least_cost().to_string())
}
