// Streams, events and graphs of a Gpu.
#include "src/core/check.h"
#include "src/cuda/gpu_current.h"

namespace kvilt::cuda {

Result<StreamHandle> Gpu::CreateStream() const {
  const Relaxed relaxed(*this);
  KVILT_RETURN_IF_ERROR(relaxed.status());
  StreamHandle stream = nullptr;
  KVILT_DRIVER_CALL(driver_, StreamCreate, &stream, kStreamNonBlocking);
  return stream;
}

void Gpu::DestroyStream(StreamHandle stream) const {
  const Relaxed relaxed(*this);
  if (relaxed.status().ok()) driver_.StreamDestroy(stream);
}

Status Gpu::WaitForStream(StreamHandle stream) const {
  const Current current(*this);
  KVILT_RETURN_IF_ERROR(current.status());
  KVILT_DRIVER_CALL(driver_, StreamSynchronize, stream);
  return Status::Ok();
}

Result<bool> Gpu::IsCapturing(StreamHandle stream) const {
  const Current current(*this);
  KVILT_RETURN_IF_ERROR(current.status());
  int state = 0;
  KVILT_DRIVER_CALL(driver_, StreamIsCapturing, stream, &state);
  return state != 0;
}

Result<EventHandle> Gpu::CreateEvent(bool timing) const {
  const Relaxed relaxed(*this);
  KVILT_RETURN_IF_ERROR(relaxed.status());
  EventHandle event = nullptr;
  KVILT_DRIVER_CALL(driver_, EventCreate, &event, timing ? 0 : kEventDisableTiming);
  return event;
}

void Gpu::DestroyEvent(EventHandle event) const {
  const Relaxed relaxed(*this);
  if (event != nullptr && relaxed.status().ok()) driver_.EventDestroy(event);
}

Status Gpu::RecordEvent(EventHandle event, StreamHandle stream) const {
  const Current current(*this);
  KVILT_RETURN_IF_ERROR(current.status());
  KVILT_DRIVER_CALL(driver_, EventRecord, event, stream);
  return Status::Ok();
}

Result<bool> Gpu::IsDone(EventHandle event) const {
  const Relaxed relaxed(*this);
  KVILT_RETURN_IF_ERROR(relaxed.status());
  const DriverResult result = driver_.EventQuery(event);
  if (result == kDriverNotReady) return false;
  KVILT_RETURN_IF_ERROR(DriverStatus(driver_, result, driver_symbol::kEventQuery));
  return true;
}

Status Gpu::WaitForEvent(EventHandle event) const {
  const Relaxed relaxed(*this);
  KVILT_RETURN_IF_ERROR(relaxed.status());
  KVILT_DRIVER_CALL(driver_, EventSynchronize, event);
  return Status::Ok();
}

Result<double> Gpu::MillisecondsBetween(EventHandle start, EventHandle end) const {
  const Relaxed relaxed(*this);
  KVILT_RETURN_IF_ERROR(relaxed.status());
  float milliseconds = 0;
  KVILT_DRIVER_CALL(driver_, EventElapsedTime, &milliseconds, start, end);
  return milliseconds;
}

Status Gpu::BeginCapture(StreamHandle stream) const {
  const Current current(*this);
  KVILT_RETURN_IF_ERROR(current.status());
  KVILT_DRIVER_CALL(driver_, StreamBeginCapture, stream, kCaptureModeThreadLocal);
  return Status::Ok();
}

Result<GraphExecHandle> Gpu::EndCapture(StreamHandle stream) const {
  const Current current(*this);
  KVILT_RETURN_IF_ERROR(current.status());
  GraphHandle graph = nullptr;
  KVILT_DRIVER_CALL(driver_, StreamEndCapture, stream, &graph);
  GraphExecHandle exec = nullptr;
  const DriverResult result = driver_.GraphInstantiate(&exec, graph, 0);
  driver_.GraphDestroy(graph);
  KVILT_RETURN_IF_ERROR(DriverStatus(driver_, result, driver_symbol::kGraphInstantiate));
  return exec;
}

Status Gpu::LaunchGraph(GraphExecHandle graph, StreamHandle stream) const {
  const Current current(*this);
  KVILT_RETURN_IF_ERROR(current.status());
  KVILT_DRIVER_CALL(driver_, GraphLaunch, graph, stream);
  return Status::Ok();
}

void Gpu::DestroyGraph(GraphExecHandle graph) const {
  const Relaxed relaxed(*this);
  if (graph != nullptr && relaxed.status().ok()) driver_.GraphExecDestroy(graph);
}

}  // namespace kvilt::cuda
