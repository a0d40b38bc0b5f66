//! An object, as only Rust sees it.

use super::*;
use crate::types::dtype;

#[test]
fn an_object_is_a_tensor_that_the_collector_does_not_know() -> PyResult<()> {
    Python::attach(|py| {
        let tensor = Tensor::new(py, Snapshot::allocate(&[2, 3], dtype::BYTE, 0)?)?;
        assert!(tensor.get_type().is(Tensor::class(py)?));
        assert!(Tensor::of(tensor.as_any()).is_some());
        assert!(tensor.is_instance_of::<Tensor>());
        assert_eq!(tensor.get().snapshot()?.shape(), [2, 3]);
        let is_tracked = py.import("gc")?.call_method1("is_tracked", (&tensor,))?;
        assert!(!is_tracked.is_truthy()?);
        let weak = py.import("weakref")?.getattr("ref")?.call1((&tensor,))?;
        assert!(weak.call0()?.is(&tensor));
        drop(tensor);
        assert!(weak.call0()?.is_none());
        Ok(())
    })
}
