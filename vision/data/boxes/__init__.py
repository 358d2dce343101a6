"""Pictures with boxes, from the files in which people keep them: Pascal VOC, COCO, YOLO, tables. `open` reads any of them."""
