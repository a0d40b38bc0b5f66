//! The functions are those of this interpreter, and say the same as PyO3's.

use pyo3::types::{IntoPyDict, PyModule};

use crate::cpython::once::intern;

use super::*;

#[test]
fn this_interpreter_has_the_functions() {
    let Functions {
        get_optional_attr,
        vectorcall_method,
        vectorcall,
    } = functions();
    assert!(get_optional_attr.is_some());
    assert!(vectorcall_method.is_some());
    assert!(vectorcall.is_some());
}

#[test]
fn a_method_answers_what_a_call_of_pyo3_answers() -> PyResult<()> {
    Python::attach(|py| {
        let code = c"class X:
    def both(self, **keywords): return keywords
    def fails(self, **keywords): raise KeyError(len(keywords))";
        let module = PyModule::from_code(py, code, c"x.py", c"x")?;
        let x = module.getattr("X")?.call0()?;
        let (names, value) = (
            PyTuple::new(py, ["key"])?,
            PyTuple::new(py, [3])?.into_any(),
        );
        let keywords = [("key", &value)].into_py_dict(py)?;
        let ours = |name, keyword| match keyword {
            true => call_method(&x, name, (&names, &value)),
            false => call_method_with(&x, name, &[]),
        };
        for keyword in [false, true] {
            let called = |name| x.call_method(name, (), keyword.then_some(&keywords));
            let name = intern!(py, "both");
            let answer = ours(name, keyword)?;
            assert_eq!(answer.len()?, usize::from(keyword));
            assert!(answer.eq(called(name)?)?);
            for name in [intern!(py, "fails"), intern!(py, "missing")] {
                let texts = [ours(name, keyword), called(name)]
                    .map(|answer| answer.map_or_else(|error| error.to_string(), |_| String::new()));
                assert!(!texts[0].is_empty() && texts[0] == texts[1]);
            }
        }
        Ok(())
    })
}

#[test]
fn a_function_gets_its_arguments_by_vector() -> PyResult<()> {
    Python::attach(|py| {
        let code = c"def f(*args, **keywords): return args, list(keywords.items())";
        let function = PyModule::from_code(py, code, c"f.py", c"f")?.getattr("f")?;
        let names = PyTuple::new(py, ["a", "b"])?;
        for count in 0..4 {
            let number = |i: i32| i.into_pyobject(py).map(Bound::into_any);
            let mut arguments = (0..=count).map(number).collect::<Result<Vec<_>, _>>()?;
            let names = (count > 1).then_some(&names);
            let named = names.map_or(0, |names| names.len());
            let positional = arguments.len() - 1 - named;
            let (got, keywords): (Vec<i32>, Vec<(String, i32)>) =
                vectorcall(&function, &mut arguments, names)?.extract()?;
            assert_eq!(got, (1..=positional as i32).collect::<Vec<_>>());
            assert_eq!(keywords.len(), named);
        }
        Ok(())
    })
}

#[test]
fn a_missing_attribute_is_none_and_a_failing_one_an_error() -> PyResult<()> {
    Python::attach(|py| {
        let code = c"class X:
    there = 1
    fails = property(lambda self: 1 / 0)
    hidden = property(lambda self: self.missing)";
        let module = PyModule::from_code(py, code, c"x.py", c"x")?;
        let x = module.getattr("X")?.call0()?;
        for name in ["there", "missing", "hidden", "fails"] {
            let ours = attribute(&x, &PyString::new(py, name));
            let theirs = x.getattr_opt(name);
            let text = |found: PyResult<Option<_>>| format!("{found:?}");
            assert_eq!(ours.is_ok(), name != "fails");
            assert_eq!(text(ours), text(theirs));
        }
        Ok(())
    })
}
