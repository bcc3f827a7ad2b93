"""CUDA without a GPU: every kernel of every shipped graph compiles, and a missing device is said."""

import pytest

pytest.importorskip("cuda.core", reason="needs the extra cuda: pip install 'fairlead[cuda]'")

from fairlead.kaas import BuildError, DeviceLostError
from fairlead.kaas.devices import open_device
from fairlead.kaas.devices.cuda import compile_cuda
from fairlead.kaas.graphs import SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_shipped_sources_compile_for_gpus(name, architecture):
    graph = SHIPPED[name]().graph
    for kernel in graph.kernels:
        cubin = compile_cuda(graph.sources[kernel.source].cuda, architecture)
        assert cubin.startswith(b"\x7fELF")
        assert kernel.name.encode() in cubin


def test_compilers_words_are_in_the_error():
    with pytest.raises(BuildError, match="does not compile"):
        compile_cuda('extern "C" __global__ void f( {')


def test_missing_gpu_is_said(tmp_path):
    with pytest.raises(DeviceLostError, match="There is no device cuda:63"):
        open_device("cuda:63", tmp_path)
