//! Arrow tables that any library can read through the Arrow C data interface.

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::SchemaRef;
use arrow_schema::ffi::FFI_ArrowSchema;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCapsule, PyDict};
use vmarea_tables::{DESCRIPTION, type_name};

/// A table in memory.
///
/// Readers share its buffers, which live as long as the last of them.
#[pyclass(frozen, module = "vmarea")]
pub(crate) struct Table {
    name: String,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Table {
    pub(crate) fn new(name: &str, schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self {
            name: name.to_owned(),
            schema,
            batches,
        }
    }
}

#[pymethods]
impl Table {
    /// Name of the table.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<&str> {
        let fields = self.schema.fields().iter();
        fields.map(|field| field.name().as_str()).collect()
    }

    /// Meaning of each column, by its name.
    #[getter]
    fn descriptions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let fields = self.schema.fields().iter();
        let about = fields.map(|field| (field.name(), field.metadata().get(DESCRIPTION)));
        about.into_py_dict(py)
    }

    /// Type of each column, by its name, as Arrow's documentation writes it.
    #[getter]
    fn types<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let fields = self.schema.fields().iter();
        let types = fields.map(|field| (field.name(), type_name(field.data_type())));
        types.into_py_dict(py)
    }

    /// Size in bytes of the table's buffers.
    #[getter]
    fn nbytes(&self) -> usize {
        self.batches
            .iter()
            .map(RecordBatch::get_array_memory_size)
            .sum()
    }

    fn __len__(&self) -> usize {
        self.num_rows()
    }

    fn __repr__(&self) -> String {
        let fields = self.schema.fields().iter();
        let columns: Vec<_> = fields
            .map(|field| format!("{}: {}", field.name(), type_name(field.data_type())))
            .collect();
        format!(
            "<vmarea.Table {}: {} rows; {}>",
            self.name,
            self.num_rows(),
            columns.join(", ")
        )
    }

    /// Hands out the schema through the Arrow C data interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.schema.as_ref())
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// Hands out the batches through the Arrow C stream interface, without a copy.
    ///
    /// The types are those of the schema: `requested_schema`, which is a wish, is not followed.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, self.schema.clone());
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}
