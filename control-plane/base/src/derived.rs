//! A place in an immutable value for what a layer above makes of it, once for as long as the value lives.

use std::{
    any::Any,
    fmt,
    sync::{Arc, OnceLock},
};

/// What was derived from the value that contains this. It is no part of the value: it starts empty in a clone, and equals
/// every other.
#[derive(Default)]
pub struct Derived(OnceLock<Arc<dyn Any + Send + Sync>>);

impl Derived {
    /// The derived value. It is made on the first call, and again on each call that asks for another type than the first.
    pub fn get_or_make<T: Any + Send + Sync>(&self, make: impl Fn() -> T) -> Arc<T> {
        let found = self.0.get_or_init(|| Arc::new(make()));
        Arc::clone(found).downcast().unwrap_or_else(|_| Arc::new(make()))
    }
}

impl Clone for Derived {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Derived {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Derived {}

impl fmt::Debug for Derived {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Derived")
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn makes_a_value_once() {
        let (derived, made) = (Derived::default(), Cell::new(0));
        let make = || made.replace(made.get() + 1);
        assert_eq!((*derived.get_or_make(make), *derived.get_or_make(make), made.get()), (0, 0, 1));
        assert_eq!(*derived.clone().get_or_make(make), 1, "a clone may be changed, and so derives anew");
    }

    #[test]
    fn makes_a_value_of_another_type_each_time() {
        let derived = Derived::default();
        assert_eq!(*derived.get_or_make(|| 1_u8), 1);
        assert_eq!(*derived.get_or_make(|| "text"), "text");
        assert_eq!(*derived.get_or_make(|| 2_u8), 1);
    }
}
