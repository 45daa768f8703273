//! Remembers compiled expressions, since parsing dominates the time of compiling.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{Compiled, Environment, ExpressionError, compile};

/// A compiled expression, or all of its errors.
pub(crate) type Compilation = Result<Arc<Compiled>, Vec<ExpressionError>>;

/// The expressions of some chains. Each is compiled when somebody asks for it first, and only then.
#[derive(Debug, Default)]
pub(crate) struct Expressions(Mutex<HashMap<Environment, HashMap<String, Compilation>>>);

impl Expressions {
    /// The compiled expression of a text, of any type.
    pub(crate) fn any(&self, text: &str, environment: Environment) -> Compilation {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.entry(environment).or_default();
        if let Some(found) = known.get(text) {
            return found.clone();
        }
        let compiled = compile(text, environment).map(Arc::new);
        known.insert(text.to_owned(), compiled.clone());
        compiled
    }

    /// Like [`Self::any`], for an expression whose type is bool, or unknown until it is evaluated.
    pub(crate) fn condition(&self, text: &str, environment: Environment) -> Compilation {
        let compiled = self.any(text, environment)?;
        compiled.check_condition().map_err(|error| vec![error])?;
        Ok(compiled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiles_a_text_once_for_everybody_who_asks() {
        let expressions = Expressions::default();
        let ask = |environment| expressions.any("request.path == '/'", environment).unwrap();
        let first = ask(Environment::Request);
        assert!(Arc::ptr_eq(&first, &ask(Environment::Request)));
        let condition = expressions.condition("request.path == '/'", Environment::Request).unwrap();
        assert!(Arc::ptr_eq(&first, &condition));
        assert!(!Arc::ptr_eq(&first, &ask(Environment::Response)), "other attributes exist there");
    }

    #[test]
    fn remembers_what_is_wrong_in_each_place() {
        let expressions = Expressions::default();
        for _ in 0..2 {
            assert!(expressions.any("response.code == 200", Environment::Response).is_ok());
            let errors = expressions.any("response.code == 200", Environment::Request).unwrap_err();
            assert_eq!(errors[0].message, "`response.code` is not known before there is a response");
            assert!(expressions.any("request.size", Environment::Request).is_ok());
            let errors = expressions.condition("request.size", Environment::Request).unwrap_err();
            assert_eq!(errors[0].message, "expected an expression of type bool, found int");
        }
    }
}
