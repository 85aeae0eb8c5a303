"""A model server on FastAPI and a client of it, as any program has them: no line of tracing."""

import socket
import sys
import threading

import fastapi
import httpx
import uvicorn

app = fastapi.FastAPI()


@app.post("/v1/chat/completions")
def chat(body: dict):
    message = {"role": "assistant", "content": "noon"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [choice],
        "usage": usage,
    }


with socket.create_server(("127.0.0.1", 0)) as listener:
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/ng-rollout/7-0/v1/chat/completions"
    request = {"model": "m", "messages": [{"role": "user", "content": "what time is it?"}]}
    for _ in range(200):
        try:
            answer = httpx.post(url, json=request, timeout=30, trust_env=False)
            break
        except httpx.ConnectError:
            threading.Event().wait(0.05)
    server.should_exit = True
    thread.join()
print(answer.status_code, answer.json().get("model"), "{}.{}".format(*sys.version_info))
