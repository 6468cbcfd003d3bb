/* A CPython extension module that is linked with libmasu. fill(n, byte) gives n
 * bytes by way of a masu block; the interpreter is not held meanwhile. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <masu.h>

static PyObject *fill(PyObject *self, PyObject *arguments) {
  Py_ssize_t size;
  int byte;
  (void)self;
  if (!PyArg_ParseTuple(arguments, "ni", &size, &byte))
    return NULL;
  char *p;
  Py_BEGIN_ALLOW_THREADS p = masu_malloc((size_t)size);
  if (p)
    memset(p, byte, (size_t)size);
  Py_END_ALLOW_THREADS PyObject *result =
      p ? PyBytes_FromStringAndSize(p, size) : PyErr_NoMemory();
  masu_free(p);
  return result;
}

static PyMethodDef methods[] = {{"fill", fill, METH_VARARGS, NULL},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT,
                                    .m_name = "masu_test_extension", .m_size = -1,
                                    .m_methods = methods};
PyMODINIT_FUNC PyInit_masu_test_extension(void) { return PyModule_Create(&module); }
