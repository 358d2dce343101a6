"""A route of servers that says how many models there are."""

import quartet


class Counting(quartet.ServerProtocol):
    """GET /count."""

    def routes(self, site):
        from starlette.responses import PlainTextResponse

        from pipelines.serving.http.app import route

        async def count(request):
            return PlainTextResponse(f"{len(site.models.names)}\n")

        return [route("/count", count)]
